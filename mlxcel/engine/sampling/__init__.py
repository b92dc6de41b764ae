"""From logits to tokens, vectorised over the rows of a batch."""
