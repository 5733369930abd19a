"""Damaged inputs of every form, and a second reading of each, which what is accepted must equal."""
