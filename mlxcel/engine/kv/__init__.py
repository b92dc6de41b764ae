"""KV state of the rows that decode together."""
