"""The bugs that are known: each a named, small change of a case. The table is in catalogue.py."""
