"""Beam search, forced decoding and the translator: raw text to raw text."""
