"""Beam search, forced decoding and the translator: raw text to raw text."""

from flaxformer_mt.decoding.alignment import Alignment as Alignment
from flaxformer_mt.decoding.batches import (
    DecodingError as DecodingError,
    translate_ids as translate_ids,
)
from flaxformer_mt.decoding.segments import (
    LineError as LineError,
    OverlongError as OverlongError,
    TargetError as TargetError,
)
from flaxformer_mt.decoding.teacher_forcing import Attention as Attention, Scored as Scored
from flaxformer_mt.decoding.translation import Hypothesis as Hypothesis, Translation as Translation
from flaxformer_mt.decoding.translator import Translator as Translator
