"""Beam search and sampling over one batch: pure functions that are compiled."""
