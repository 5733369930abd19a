"""Worked examples of documents as data, and what judges them."""
