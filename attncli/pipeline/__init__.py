"""A sentence computed from its words to contextual vectors, as one Trace."""
