"""Corpora to the vocabulary and token store of a run directory, every pair accounted for."""

from flaxformer_mt.data.prepare.make import prepare, valid_text
from flaxformer_mt.data.prepare.manifest import PrepareError, read_manifest
from flaxformer_mt.data.prepare.report import describe
from flaxformer_mt.data.prepare.sample import check_inputs, count_pairs

__all__ = [
    "PrepareError",
    "check_inputs",
    "count_pairs",
    "describe",
    "prepare",
    "read_manifest",
    "valid_text",
]
