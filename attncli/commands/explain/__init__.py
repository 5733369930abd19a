"""explain: a sentence to contextual vectors, and what they mean."""
