"""Which tokens of a vocabulary belong to a language, and how likely they are made."""
