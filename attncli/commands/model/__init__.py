"""Attention of real models: captured while they run, and from a checkpoint on disk.

    model(**inputs) ── capture ──> Calls of Call ──┬── trace()   a Trace of every stage
                                                   ├── check()   the Verdict on the model's output
                                                   └── save()    what compute, check and diff read

Only `capture` and `checkpoint` need PyTorch; a Call holds NumPy arrays.
"""
