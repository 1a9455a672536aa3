"""Runs that are killed and damaged on purpose, and their outcomes."""
