"""Array files in and out: JSON, npy, npz, csv/tsv, safetensors, and saved traces.

    SOURCE ── blob (where, which format) ── *_file (how to read it) ── Loaded ── pick / only (role)
    Trace, Stage ── trace_file / save ── write_atomically ── a file

Nothing here prints: problems are raised, remarks are `Loaded.warnings`. The modules that read and
write one format are imported when one is met, so that a small JSON costs no zipfile and no csv.
"""
