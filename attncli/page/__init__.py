"""A trace as parts: tables, arithmetic, walks and sentences. Prints nothing, reads no file."""
