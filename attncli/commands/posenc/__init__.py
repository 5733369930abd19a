"""posenc: positional encodings."""
