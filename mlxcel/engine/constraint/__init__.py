"""What an answer must look like, as masks over the vocabulary (llguidance)."""
