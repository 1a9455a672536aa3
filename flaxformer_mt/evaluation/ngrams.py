"""N-grams that hypotheses share with their references, for many sentences at once."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from jaxtyping import Int64

Units = Sequence[Hashable]  # a sentence's words, or a string: its characters

_AT_ONCE = 1 << 20  # units whose n-grams are in memory
_LARGEST = 1 << 61  # numbers of n-grams stay below


def shared_ngrams(
    hypotheses: Sequence[Units], references: Sequence[Units], most: int
) -> Int64[np.ndarray, "sentences most"]:
    """How many n-grams of 1 to `most` units both sides of a pair have. One that is there several
    times counts as often as on the side that has fewer."""
    shared = np.zeros((len(hypotheses), most), np.int64)
    for part in _parts([*map(len, hypotheses)], [*map(len, references)]):
        shared[part] = _shared(hypotheses[part], references[part], most)
    return shared


def all_ngrams(sentences: Sequence[Units], most: int) -> Int64[np.ndarray, "sentences most"]:
    """How many n-grams of 1 to `most` units each sentence has."""
    lengths = np.array([*map(len, sentences)], np.int64)
    return np.maximum(lengths[:, None] - np.arange(most), 0)


def _parts(sizes: Sequence[int], other_sizes: Sequence[int]) -> Iterator[slice]:
    """Consecutive pairs of at most `_AT_ONCE` units, or single ones."""
    begin = units = 0
    for number, pair in enumerate(zip(sizes, other_sizes, strict=True)):
        if units + sum(pair) > _AT_ONCE and number > begin:
            yield slice(begin, number)
            begin, units = number, 0
        units += sum(pair)
    yield slice(begin, len(sizes))


def _shared(
    hypotheses: Sequence[Units], references: Sequence[Units], most: int
) -> Int64[np.ndarray, "sentences most"]:
    texts = [*hypotheses, *references]
    digit_of: dict[Hashable, int] = {}
    units = itertools.chain.from_iterable(texts)
    digits = np.array([digit_of.setdefault(unit, len(digit_of)) for unit in units], np.int64)
    lengths = np.array([*map(len, texts)], np.int64)
    is_reference = np.repeat(np.arange(len(texts)) >= len(hypotheses), lengths)
    left = np.repeat(lengths.cumsum(), lengths) - np.arange(len(digits))  # to the text's end

    # An n-gram's number is its sentence's, followed by a digit for each unit: in order of their
    # numbers, the n-grams of a sentence are together, behind the number in `begins`.
    shared = np.zeros((len(hypotheses), most), np.int64)
    begins = np.arange(len(hypotheses))
    numbers = np.repeat(np.tile(begins, 2), lengths)
    places = np.arange(len(digits))
    for order in range(most):
        is_whole = left[places] > order
        places, numbers = places[is_whole], numbers[is_whole]
        if not len(places):
            break
        if int(numbers.max() + 1) * len(digit_of) >= _LARGEST:
            present, numbers = np.unique(numbers, return_inverse=True)
            begins = np.searchsorted(present, begins)
        numbers = numbers * len(digit_of) + digits[places + order]
        begins = begins * len(digit_of)
        shared[:, order] = _counts(numbers, is_reference[places], begins)
    return shared


def _counts(
    numbers: Int64[np.ndarray, " ngrams"],
    is_reference: np.ndarray,
    begins: Int64[np.ndarray, " sentences"],
) -> Int64[np.ndarray, " sentences"]:
    """The shared ones among n-grams of one order, by sentence."""
    in_order = np.sort(2 * numbers + is_reference)
    starts = np.flatnonzero(np.diff(in_order >> 1, prepend=-1))
    totals = np.diff(starts, append=len(in_order))
    of_reference = np.add.reduceat(in_order & 1, starts)
    sentences = np.searchsorted(begins, in_order[starts] >> 1, side="right") - 1
    both = np.minimum(of_reference, totals - of_reference)
    return np.bincount(sentences, both, minlength=len(begins)).astype(np.int64)
