"""What is around an attention: layers, norms, and weights under any published name."""
