"""formulas: the formulas of an attention, written and read."""
