"""What a request may take: the KV budget, and the estimate of what it needs."""
