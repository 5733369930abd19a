"""Attention calls of a PyTorch module, watched while it runs; everything here imports torch."""
