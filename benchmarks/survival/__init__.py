"""Runs that are killed and damaged on purpose, and what becomes of them."""
