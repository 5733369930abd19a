"""Damaged inputs of every form, and a second reading of each, which what is accepted must equal.

    number ── cases ── Case ── run ── outcome: refused, accepted, escaped, slow, large or misread
                │                └── expected ── second, plain
                └── forms, mutate

A case follows from its seed and its number alone, so that what is found can be run again.
"""
