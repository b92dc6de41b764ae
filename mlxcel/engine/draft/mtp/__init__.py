"""Drafters that were trained with the target: they foretell tokens from its hidden states."""
