"""Sizes that follow from settings before there is any text."""

from __future__ import annotations

from flaxformer_mt.config.schema import VocabularyConfig

_MARKS = 4


def expected_types(vocabulary: VocabularyConfig) -> tuple[int, int]:
    """Source and target types that `prepare` will make.

    How many words a target of whole words has, its text decides: at least the ones that are named.
    """
    if vocabulary.tgt_types == "words":
        return vocabulary.size, _MARKS + len(vocabulary.tgt_words)
    return vocabulary.size, vocabulary.size
