"""examples: worked examples of articles, computed and compared with what is printed."""
