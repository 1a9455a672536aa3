"""Checks whether a machine can train, for `doctor`."""
