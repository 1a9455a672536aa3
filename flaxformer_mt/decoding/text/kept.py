"""Vocabularies that read marked lines, and where kept texts go in a translation."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import regex

from flaxformer_mt.config.languages import SPACED_LETTER, UNSPACED_LETTER, UNSPACED_SIGNS
from flaxformer_mt.data.vocabulary import UNK, Vocabularies, Vocabulary
from flaxformer_mt.keeping.marks import MARK, MarkedLine, taken_out, taken_out_with_places
from flaxformer_mt.keeping.spans import Kept
from flaxformer_mt.markup.projection import Span, project

# Marks, words and signs, and each letter of a script without blanks.
_UNITS = regex.compile(rf"{MARK}|{UNSPACED_LETTER}|(?:(?!{MARK}){SPACED_LETTER})++|\S", regex.V1)
_UNSPACED = regex.compile(rf"{UNSPACED_LETTER}|[{UNSPACED_SIGNS}]")
_LETTER = regex.compile(SPACED_LETTER, regex.V1)
# A word of letters of which the vocabulary doesn't know one; letters of scripts without blanks
# alone, since their neighbours may be other words.
_WORD = regex.compile(rf"{SPACED_LETTER}(?:[-'’]?{SPACED_LETTER})*+|{UNSPACED_LETTER}|\S", regex.V1)
_ENDS = frozenset(".!?…。！？।")  # of sentences
_OPENING = "([{¿¡“„«‘「『（【\"'"
_CLOSING = ")]}.,;:!?…%”’»、。，；：！？）】」』"
_CONNECTING = "-–/'’_@#+=&"


class MarkedVocabulary(Vocabulary):
    """A vocabulary that reads marked lines without what is kept; spans are of the marked line."""

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """As `Vocabulary.encode`."""
        return super().encode([taken_out(sentence) for sentence in sentences])

    def encode_with_spans(self, sentence: str) -> tuple[list[int], list[tuple[int, int]]]:
        """As `Vocabulary.encode_with_spans`."""
        if MARK not in sentence:
            return super().encode_with_spans(sentence)
        text, places = taken_out_with_places(sentence)
        ids, spans = super().encode_with_spans(text)
        return ids, [(places[begin], places[end]) for begin, end in spans]

    @functools.cached_property
    def symbols(self) -> frozenset[str]:
        """Pieces that are never split, and the mark."""
        return super().symbols | {MARK}


def marked_vocabularies(vocabularies: Vocabularies) -> Vocabularies:
    """The same vocabularies, for marked lines."""
    src = MarkedVocabulary(vocabularies.src.model, vocabularies.src.table)
    if vocabularies.shared:
        return Vocabularies(src, src)
    return Vocabularies(src, MarkedVocabulary(vocabularies.tgt.model, vocabularies.tgt.table))


def unknown_words(text: str, vocabulary: Vocabulary) -> list[Kept]:
    """The words of a text with letters, and its single signs, that the vocabulary doesn't know."""
    if not text or UNK not in vocabulary.encode([text])[0]:
        return []
    ids, spans = vocabulary.encode_with_spans(text)
    unknown = [span for token, span in zip(ids, spans, strict=True) if token == UNK]
    ends = itertools.accumulate(len(character.encode()) for character in text)
    character_at = {end: number for number, end in enumerate(ends, start=1)} | {0: 0}
    is_unknown = bytearray(len(text))
    for begin, end in unknown:
        first, last = character_at[begin], character_at[end]
        is_unknown[first:last] = b"\1" * (last - first)
    return [
        Kept.whole(*word.span())
        for word in _WORD.finditer(text)
        if any(is_unknown[word.start() : word.end()])
    ]


def units(text: str) -> list[tuple[int, int]]:
    """The places of what is aligned: words, signs, marks, letters of scripts without blanks."""
    return [match.span() for match in _UNITS.finditer(text)]


Attended = tuple[int, int, Sequence[float]]
"""A unit of a translation, one of its source, and what the first attends to from there on."""


class _Mark(NamedTuple):
    """A mark in a source: how many units without marks are before it, and what touches it."""

    before: int
    left: str
    right: str


@dataclasses.dataclass(frozen=True)
class Restorer:
    """Puts kept texts back into the translations of a marked line, behind their `prefix`.

    `whole` are patterns of what must not be torn apart, such as required phrases.
    """

    line: MarkedLine
    prefix: str = ""
    whole: Sequence[regex.Pattern[str]] = ()

    def cleaned(self, given: str) -> str:
        """A translation without texts that are kept, which the model has written of its own."""
        text, is_changed = given, True
        while is_changed:
            is_changed = False
            for core in dict.fromkeys(self.line.cores):
                if core and core in text:
                    text, is_changed = text.replace(f" {core}", "").replace(core, ""), True
        return text.strip() if text != given else text

    def restored(self, text: str, attended: Iterable[Attended]) -> str:
        """A translation with the kept texts; `attended` says what its units attend to."""
        marks, source = self._marks()
        target = units(text)
        by_gap: dict[int, list[int]] = {}
        for number, gap in enumerate(self._gaps(marks, source, text, attended)):
            by_gap.setdefault(gap, []).append(number)

        restored, start = "", 0
        for gap, marks_here in sorted(by_gap.items()):
            end = target[gap - 1][1] if gap else 0
            restored += text[start:end]
            start = target[gap][0] if gap < len(target) else len(text)
            kept_text = _side_by_side([self.line.kept[number] for number in marks_here])
            left = _blank_before(restored, marks[marks_here[0]].left, kept_text)
            right = _blank_behind(text[start : start + 1], marks[marks_here[-1]].right)
            if end < start < len(text) and not (left or right):
                right = " "  # the two words were apart
            restored += left + kept_text + right
        return restored + text[start:]

    def _gaps(
        self,
        marks: Sequence[_Mark],
        source: Mapping[int, str],
        text: str,
        attended: Iterable[Attended],
    ) -> list[int]:
        """For each mark how many of the text's units go before it; `source` has the source's other
        units by their numbers."""
        target = units(text)
        weights = _Weights.of(source, [text[start:end] for start, end in target], attended)
        points = weights.projected([mark.before for mark in marks])
        uncut = [match.span() for pattern in self.whole for match in pattern.finditer(text)]
        fixed = len(self.prefix.strip()) if text.startswith(self.prefix.strip()) else 0
        least = sum(start < fixed for start, _ in target)
        gaps = []
        for mark, point in zip(marks, points, strict=True):
            best = weights.best_gap(mark.before)
            gaps.append(_outside(max(point if best is None else best, least), target, uncut))
        return gaps

    def _marks(self) -> tuple[list[_Mark], dict[int, str]]:
        """The marks of the source, and its other units, without its lead, by their numbers."""
        text = self.line.text
        marks: list[_Mark] = []
        following: dict[int, str] = {}
        for number, (start, end) in enumerate(units(text)):
            if start < len(self.line.lead):
                continue
            if text[start:end] == MARK:
                left, right = text[max(0, start - 1) : start], text[end : end + 1]
                marks.append(_Mark(len(following), left, right))
            else:
                following[number] = text[start:end]
        return marks, following


@dataclasses.dataclass(frozen=True)
class _Weights:
    """Attention between the words of a source without its marks and those of its translation, by
    source word. What signs attend to says little and is left out."""

    source: Sequence[str]
    target: Sequence[str]
    columns: Mapping[int, Mapping[int, float]]  # by source word and target word

    @classmethod
    def of(
        cls, source: Mapping[int, str], target: Sequence[str], attended: Iterable[Attended]
    ) -> _Weights:
        """`source` has its units by the numbers that `attended` gives them."""
        words = [*source.values()]
        places = {
            number: place for place, (number, unit) in enumerate(source.items()) if _is_word(unit)
        }
        columns: dict[int, dict[int, float]] = {}
        for tgt, first, weights in attended:
            for number, weight in enumerate(weights if _is_word(target[tgt]) else (), start=first):
                if number in places:
                    column = columns.setdefault(places[number], {})
                    column[tgt] = column.get(tgt, 0.0) + weight
        return cls(words, target, columns)

    def best_gap(self, before: int) -> int | None:
        """How many target units go before a mark with `before` source units before it: the
        left neighbour's share of attention is highest on its left, and the right one's on its
        right. None at an edge of the text or a sentence, and if neither is a word."""
        after_end = before - 1 in self._ends
        if not 0 < before < len(self.source) or before in self._ends or after_end:
            return None
        left, right = (_shares(self.columns.get(place, {})) for place in (before - 1, before))
        gaps = {tgt + 1: share for tgt, share in left.items()}
        for tgt, share in right.items():
            gaps[tgt] = gaps.get(tgt, 0.0) + share
        return max(gaps, key=gaps.__getitem__, default=None)

    def projected(self, points: Sequence[int]) -> list[int]:
        """The same for marks at these points, by the links of all words around them. At the end of
        a sentence it goes before the mark that ends it."""
        projected = project(
            [Span(point, point) for point in points],
            self.source,
            self.target,
            [*self._links(), *self._ends.items()],
            parents=[-1] * len(points),
        )
        return [
            self._ends.get(point, place.start)
            for point, place in zip(points, projected, strict=True)
        ]

    def _links(self) -> Iterator[tuple[int, int]]:
        """The source word that each target word attends to most."""
        best: dict[int, tuple[float, int]] = {}
        for src, column in self.columns.items():
            for tgt, weight in column.items():
                if weight > best.get(tgt, (0.0, 0))[0]:
                    best[tgt] = weight, src
        return ((src, tgt) for tgt, (_, src) in best.items())

    @functools.cached_property
    def _ends(self) -> dict[int, int]:
        """The marks at the ends of the target's sentences, by the source's: if both sides have as
        many, or both end with one."""
        src_ends, tgt_ends = (
            [place for place, unit in enumerate(side) if unit in _ENDS]
            for side in (self.source, self.target)
        )
        if len(src_ends) == len(tgt_ends):
            return dict(zip(src_ends, tgt_ends, strict=True))
        if src_ends[-1:] == [len(self.source) - 1] and tgt_ends[-1:] == [len(self.target) - 1]:
            return {src_ends[-1]: tgt_ends[-1]}
        return {}


def _shares(weights: Mapping[int, float]) -> dict[int, float]:
    total = sum(weights.values())
    return {place: weight / total for place, weight in weights.items()} if total else {}


def _is_word(unit: str) -> bool:
    return _LETTER.match(unit) is not None or _UNSPACED.match(unit) is not None


def _outside(gap: int, target: Sequence[tuple[int, int]], uncut: Sequence[tuple[int, int]]) -> int:
    """The gap, or the next one behind what must not be torn apart."""
    while 0 < gap < len(target):
        place = target[gap][0]
        around = [end for start, end in uncut if start < place < end]
        if not around:
            break
        while gap < len(target) and target[gap][0] < max(around):
            gap += 1
    return gap


def _side_by_side(kept: Sequence[str]) -> str:
    first, *following = kept
    return first + "".join(text if text[:1] in ",;:" else f" {text}" for text in following)


def _blank_before(text: str, left: str, kept: str) -> str:
    """What goes between the text so far and a kept text that had `left` before it."""
    last = text[-1:]
    if not last or last.isspace() or last in _OPENING or _UNSPACED.match(last):
        return ""
    if kept[:1] in (",", ";", ":"):
        return ""
    was_attached = left and (left in _CONNECTING or _LETTER.match(left))
    return "" if was_attached else " "


def _blank_behind(first: str, right: str) -> str:
    """What goes between a kept text that had `right` behind it and the text that goes on."""
    if not first or first.isspace() or first in _CLOSING or _UNSPACED.match(first):
        return ""
    was_attached = right and (right in _CONNECTING or _LETTER.match(right))
    return "" if was_attached else " "
