"""Words: the tokens of a sentence, random vectors for words, and what vectors have in common."""
