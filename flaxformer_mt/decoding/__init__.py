"""Beam search and the translator: raw text to raw text."""

from flaxformer_mt.decoding.decode import DecodingError, translate_ids
from flaxformer_mt.decoding.translator import Hypothesis, Translation, Translator

__all__ = ["DecodingError", "Hypothesis", "Translation", "Translator", "translate_ids"]
