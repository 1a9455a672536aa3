"""Edits of the translation edit rate (Snover et al., 2006), by the rules of Tercom and sacreBLEU.

The edits are shifts of phrases, chosen greedily, and then words inserted, deleted and replaced.
sacreBLEU's own function computes the many edit distances cell by cell. Here a row of their matrix
is two integers, whose bits say where the distance rises and falls along the reference (Myers, 1999,
"A fast bit-vector algorithm for approximate string matching"; Hyyrö, 2001): the same numbers in a
small part of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sacrebleu.metrics.lib_ter import translation_edit_rate

# Tercom's limits.
_LONGEST_SHIFT = 10  # words
_FARTHEST_SHIFT = 50  # words between a phrase and its like in the reference
_MOST_TRIED = 1000  # shifts of a sentence
# sacreBLEU looks at 25 cells on each side of the diagonal only. No best path leaves them if the
# edits and the difference of the lengths are at most this, and nothing else is outside them in
# short references.
_NEAR_THE_DIAGONAL = 47
_SHORT = 24


def edits(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """How many edits make the reference of the hypothesis, both as words."""
    ends = _Ends(reference)
    words, distances = [*hypothesis], _Distances(ends, hypothesis)
    difference = abs(len(words) - len(reference))
    if len(reference) > _SHORT and distances.total + difference > _NEAR_THE_DIAGONAL:
        return int(translation_edit_rate(words, [*reference])[0])

    shifts = tried = 0
    while distances.total:
        best, tried = _best_shift(words, reference, distances, tried)
        if tried >= _MOST_TRIED or best is None or best.gain <= 0:
            break
        words = best.words
        distances = _Distances(ends, words)
        shifts += 1
    return shifts + distances.total


class _Ends:
    """Where each word of the reference is: as bits, and as numbers."""

    def __init__(self, reference: Sequence[str]) -> None:
        self.every = (1 << len(reference)) - 1
        self.bits: dict[str, int] = {}
        self.places: dict[str, list[int]] = {}
        for place, word in enumerate(reference):
            self.bits[word] = self.bits.get(word, 0) | 1 << place
            self.places.setdefault(word, []).append(place)


class _Row(NamedTuple):
    """Edit distances of a beginning of the hypothesis from each beginning of the reference.

    Bit j of the first two: the distance is one more, or one less, from j + 1 words than from j. Of
    the others: than from j + 1 words in the row before.
    """

    rises: int
    falls: int
    rises_down: int = 0
    falls_down: int = 0


def _below(rises: int, falls: int, matches: int, every: int) -> tuple[int, int, int, int]:
    """The fields of the next row, if the next word matches the reference at these bits."""
    equal = ((matches & rises) + rises ^ rises) | matches
    rises_down = (falls | ~(equal | rises)) & every
    falls_down = equal & rises
    above = rises_down << 1 | 1
    still = matches | falls
    rises = (falls_down << 1 | ~(still | above)) & every
    return rises, above & still & every, rises_down, falls_down


class _Distances:
    """Edit distances of all beginnings of a hypothesis from the reference."""

    def __init__(self, ends: _Ends, words: Sequence[str]) -> None:
        self.ends = ends
        self.rows = [_Row(ends.every, 0)]
        for word in words:
            rises, falls, *_ = self.rows[-1]
            self.rows.append(_Row(*_below(rises, falls, ends.bits.get(word, 0), ends.every)))
        self.total = _total(*self.rows[-1][:2], len(words))

    def with_others(self, common: int, words: Sequence[str]) -> int:
        """The distance of other words that begin with the same `common` ones."""
        rises, falls, *_ = self.rows[common]
        bits, every = self.ends.bits, self.ends.every
        for word in words[common:]:
            rises, falls, _, _ = _below(rises, falls, bits.get(word, 0), every)
        return _total(rises, falls, len(words))


def _total(rises: int, falls: int, words: int) -> int:
    """The distance from the whole reference, in the row of so many words."""
    return words + rises.bit_count() - falls.bit_count()


class _Alignment(NamedTuple):
    """A best path through the distances."""

    used: list[int]  # for each word of the reference: the hypothesis's last word by then, or -1
    wrong: int  # the hypothesis's words that are deleted or replaced, as bits
    missed: int  # the reference's words that are inserted or replace others


def _alignment(words: Sequence[str], reference: Sequence[str], distances: _Distances) -> _Alignment:
    """The path that, from the end, keeps or replaces a word where it can, else deletes one."""
    used = [-1] * len(reference)
    wrong = missed = 0
    here, there = len(words), len(reference)
    while here or there:
        row, above, cell = distances.rows[here], distances.rows[here - 1], 1 << there >> 1
        is_both = here and there
        is_kept = is_both and words[here - 1] == reference[there - 1]
        is_replaced = is_both and not is_kept and _costs_one(row, above, cell)
        if is_kept or is_replaced:
            here, there = here - 1, there - 1
            used[there] = here
            wrong |= is_replaced << here
            missed |= is_replaced << there
        elif here and (not there or row.rises_down & cell):
            here -= 1
            wrong |= 1 << here
        else:
            there -= 1
            used[there] = here - 1
            missed |= 1 << there
    return _Alignment(used, wrong, missed)


def _costs_one(row: _Row, above: _Row, cell: int) -> bool:
    """Whether the distance there is one more than with a word less on either side."""
    rises = bool(row.rises_down & cell) + bool(above.rises & cell)
    return rises - bool(row.falls_down & cell) - bool(above.falls & cell) == 1


class _Shift(NamedTuple):
    """A hypothesis with one phrase at another place; of several, Tercom takes the greatest."""

    gain: int  # by which the distance falls
    length: int
    start: int  # where the phrase began, times -1: the first phrase is the greatest
    place: int  # where it goes, times -1
    words: list[str]


def _best_shift(
    words: list[str], reference: Sequence[str], distances: _Distances, tried: int
) -> tuple[_Shift | None, int]:
    """The best shift, if there is any, and how many of the sentence have been tried by now."""
    alignment = _alignment(words, reference, distances)
    best: _Shift | None = None
    for start, there, length in _common_phrases(words, distances.ends, reference):
        for place in _places(alignment, start, there, length):
            shifted = _shifted(words, start, length, place)
            gain = distances.total - distances.with_others(min(start, place), shifted)
            shift = _Shift(gain, length, -start, -place, shifted)
            if best is None or shift > best:
                best = shift
            tried += 1
        if tried >= _MOST_TRIED:
            break
    return best, tried


def _common_phrases(
    words: Sequence[str], ends: _Ends, reference: Sequence[str]
) -> Iterator[tuple[int, int, int]]:
    """Phrases of both sides: where each begins there and here, and its length."""
    for start, word in enumerate(words):
        for there in ends.places.get(word, ()):
            if abs(there - start) > _FARTHEST_SHIFT:
                continue
            pairs = zip(words[start : start + _LONGEST_SHIFT], reference[there:], strict=False)
            for length, (one, other) in enumerate(pairs, start=1):
                if one != other:
                    break
                yield start, there, length


def _places(alignment: _Alignment, start: int, there: int, length: int) -> Iterator[int]:
    """Before which words of the hypothesis a phrase may go that the reference has at `there`."""
    used, phrase = alignment.used, (1 << length) - 1
    if not (alignment.wrong >> start & phrase and alignment.missed >> there & phrase):
        return  # it is right, or the reference's is found elsewhere
    if start <= used[there] < start + length:
        return  # it would move within itself
    place = -1
    for last in [used[there - 1] if there else -1, *used[there : there + length]]:
        if last + 1 != place:
            place = last + 1
            yield place


def _shifted(words: list[str], start: int, length: int, place: int) -> list[str]:
    """The words with a phrase moved before another word; behind itself, by so many words."""
    phrase, others = words[start : start + length], words[:start] + words[start + length :]
    if place > start + length:
        place -= length
    return others[:place] + phrase + others[place:]
