"""The commands, a room each: what a command computes stands in one folder."""
