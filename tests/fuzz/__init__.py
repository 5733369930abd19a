"""Damaged inputs of every form; what JSON and npy files hold is read a second time."""
