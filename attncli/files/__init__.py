"""Files in and out: arrays, saved traces and word vectors; callers import from the modules.

    SOURCE ── source ── Source ─┬─ load, by json, npy, table, safetensors ── FileContents ── lookup
                                └─ word_vectors, by word_entries ── Vectors, Neighbours
    Trace ── write ── a file ── trace ── Trace           trace: the format too, and its schema

Nothing here prints: problems are raised, remarks are `warnings` of what is returned. The modules of
one format are imported when one is met, so that a small JSON costs no zipfile and no csv.
"""
