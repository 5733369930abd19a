"""A planted set: attentions that are wrong in one known place, and right ones that look different.

worlds ── Inputs ──┬── wrong   rows of what a verdict may call them
                   ├── right   rows that must match
                   └── inside  right ones that keep a lower precision inside
"""
