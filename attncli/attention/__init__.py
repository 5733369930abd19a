"""Numbers in, Trace out: attention and what stands around it. Prints nothing, reads no file."""
