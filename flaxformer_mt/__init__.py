"""The Transformer of "Attention Is All You Need" (arXiv 1706.03762) for machine translation."""

# The one place of the version; the build reads it from here. Nothing is imported: rooms such as
# `flaxformer_mt.config` load without JAX.
__version__ = "0.1.0"
