"""Runs of tokens' KV as files: written off the tick, bounded, checked when they are read."""
