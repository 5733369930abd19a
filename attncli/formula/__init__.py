"""The language of formulas: what one says, computes, and gives when it is derived."""
