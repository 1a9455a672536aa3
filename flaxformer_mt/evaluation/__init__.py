"""Metrics with signatures, evaluations of translators and of files, comparisons of systems."""
