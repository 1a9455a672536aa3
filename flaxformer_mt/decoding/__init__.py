"""Beam search, forced decoding and the translator: raw text to raw text."""

from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.batches import DecodingError, translate_ids
from flaxformer_mt.decoding.segments import LineError, OverlongError, TargetError
from flaxformer_mt.decoding.teacher_forcing import Attention, Scored
from flaxformer_mt.decoding.translation import Hypothesis, Translation
from flaxformer_mt.decoding.translator import Translator

__all__ = [
    "Alignment",
    "Attention",
    "DecodingError",
    "Hypothesis",
    "LineError",
    "OverlongError",
    "Scored",
    "TargetError",
    "Translation",
    "Translator",
    "translate_ids",
]
