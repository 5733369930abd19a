"""Words in, vectors out: where vectors are read from and what they have in common."""
