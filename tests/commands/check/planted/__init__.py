"""Attentions that are wrong in one known place, and right ones that look different."""
