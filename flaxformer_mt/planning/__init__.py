"""Compiles the training step for accelerators that are not there, and reads what it would cost."""
