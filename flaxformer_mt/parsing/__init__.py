"""Constituency parsing as translation: trees as text, text as trees, and EVALB's scores."""
