"""model: what a model on disk attends to."""
