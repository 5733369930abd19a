"""Words: the tokens of a sentence, and what vectors have in common."""
