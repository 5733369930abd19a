"""Attention, the layers around it, and positions: arrays in, a Trace out."""
