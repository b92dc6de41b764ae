"""KV that was read before: kept, found again, explained, and written to disk."""
