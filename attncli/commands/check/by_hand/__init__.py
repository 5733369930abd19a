"""Marking by hand: every stage of a sheet judged from the sheet's own stage before it."""
