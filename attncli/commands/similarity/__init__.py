"""similarity: what word vectors have in common."""
