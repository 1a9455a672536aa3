"""Which source word each word of a translation comes from, by the decoder's attention.

The weights over the source of all layers (`TeacherForcing.aligning_weights`) are summed over a
word's pieces. Then they are balanced, so that no source word, such as a full stop, gets much more
than others: rows and columns are divided by their sums in turn (Sinkhorn and Knopp, 1967). A target
word is aligned to the source word with the largest share. Of one layer the weights are averaged
over heads and not balanced: the baseline of Garg et al. (2019), arXiv 1909.02074.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import regex
from jaxtyping import Float, Int

from flaxformer_mt.config.languages import UNSPACED_LETTER
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.decoding.teacher_forcing import TeacherForcing
from flaxformer_mt.decoding.text.segments import Part, join_translations
from flaxformer_mt.pages import text

WordPlaces = Callable[[str], Sequence[tuple[int, int]]]
"""Where the words of a text begin and end."""
_WORDS = re.compile(r"\S+")
_UNSPACED = rf"(?!\p{{M}}){UNSPACED_LETTER}"
# Accents and vowel signs go with their letter.
_LETTERS = regex.compile(rf"{_UNSPACED}\p{{M}}*+|(?:(?!{_UNSPACED})[^\s\x1c-\x1f])++")
_ROUNDS = 4
_ADDED = 0.3  # to a column's sum


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alignment:
    """Words, and pairs (source word, target word) of their indices from 0, by target word."""

    src_words: tuple[str, ...]
    tgt_words: tuple[str, ...]
    links: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        """The Pharaoh decoder's format, "0-0 1-2", by source word."""
        return " ".join(f"{src}-{tgt}" for src, tgt in sorted(self.links))

    def _repr_html_(self) -> str:
        above = {tgt: self.src_words[src] for src, tgt in self.links}
        words = (
            f"<ruby>{text(word)}<rt>{text(above.get(number, ''))}</rt></ruby>"
            for number, word in enumerate(self.tgt_words)
        )
        return f'<p style="word-spacing: 0.5em">{" ".join(words)}</p>'


def words_of(line: str) -> list[tuple[int, int]]:
    """The places of the words between blanks."""
    return [match.span() for match in _WORDS.finditer(line)]


def letters_of(line: str) -> list[tuple[int, int]]:
    """The places of the words between blanks, and of each letter of a script without blanks."""
    return [match.span() for match in _LETTERS.finditer(line)]


def align_parts(
    forcing: TeacherForcing,
    vocabularies: Vocabularies,
    lines: Sequence[tuple[str, str | None, Sequence[Part]]],
    *,
    layer: int | None = None,
    blanks: bool = True,
    tags: Sequence[int] = (),
    words: WordPlaces = words_of,
) -> list[Alignment]:
    """Each line's alignment: a line is its source, translation (None: the parts', joined with
    `blanks` if the target language has them between sentences) and parts. So many words at the
    beginning of a line as `tags` says (none: 0) are not of its text: no word is aligned to them,
    and they aren't counted. `words` finds the words of a text."""
    attended = attended_words(
        forcing, vocabularies, lines, layer=layer, blanks=blanks, tags=tags, words=words
    )
    return [
        Alignment(src_words=src_words, tgt_words=tgt_words, links=tuple(_links(rows)))
        for src_words, tgt_words, rows in attended
    ]


def _links(rows: Iterable[AttendedWord]) -> Iterator[tuple[int, int]]:
    # A word that goes on in the next part is there once for each of these parts.
    for tgt_word, of_parts in itertools.groupby(rows, key=operator.attrgetter("tgt_word")):
        sums: dict[int, float] = {}  # by source word
        for _, first_src_word, of_part in of_parts:
            for src_word, weight in enumerate(of_part, start=first_src_word):
                sums[src_word] = sums.get(src_word, 0.0) + weight
        if any(sums.values()):
            yield max(sums, key=sums.__getitem__), tgt_word


class AttendedWord(NamedTuple):
    """What one target word attends to in a part of its line."""

    tgt_word: int
    first_src_word: int
    weights: list[float]  # of that source word and those after it


def attended_words(
    forcing: TeacherForcing,
    vocabularies: Vocabularies,
    lines: Sequence[tuple[str, str | None, Sequence[Part]]],
    *,
    layer: int | None = None,
    blanks: bool,
    tags: Sequence[int],
    words: WordPlaces,
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Iterator[AttendedWord]]]:
    """Each line's source words and target words, and what the latter attend to, in the line's
    order; arguments as for `align_parts`."""
    parts = list(itertools.chain.from_iterable(of for _, _, of in lines))
    weights = (
        forcing.aligning_weights(parts) if layer is None else forcing.cross_weights(parts, layer)
    )
    by_target_word = _ByTargetWord(vocabularies, balanced=layer is None)
    for (source, target, of), tag_words in zip(lines, tags or [0] * len(lines), strict=True):
        if target is None:
            texts = [part.tgt_text for part in of]
            target = join_translations(texts, of, blanks=blanks)
        of_parts = [next(weights) for _ in of]
        src, tgt = (_Words(text, words) for text in (source, target))
        rows = by_target_word(src, tgt, of, of_parts)
        yield src.texts[tag_words:], tgt.texts, _without_tags(rows, tag_words)


def _without_tags(rows: Iterable[AttendedWord], tags: int) -> Iterator[AttendedWord]:
    for tgt_word, first_src_word, weights in rows:
        skipped = max(0, tags - first_src_word)
        yield AttendedWord(tgt_word, max(first_src_word - tags, 0), weights[skipped:])


@dataclasses.dataclass(frozen=True)
class _ByTargetWord:
    """Each part's target words, in the line's order, with their weights summed over pieces."""

    vocabularies: Vocabularies
    balanced: bool

    def __call__(
        self,
        src: _Words,
        tgt: _Words,
        parts: Sequence[Part],
        weights: Sequence[Float[np.ndarray, "tgt src"]],
    ) -> Iterator[AttendedWord]:
        for part, part_weights in zip(parts, weights, strict=True):
            src_spans, tgt_spans = self._spans(part)
            columns = src.of_pieces(part.src_text, src_spans)
            rows = tgt.of_pieces(part.tgt_text, tgt_spans)
            # End marks belong to no word.
            inner = part_weights[: len(rows), : len(columns)][rows >= 0][:, columns >= 0]
            rows, columns = rows[rows >= 0], columns[columns >= 0]
            if not inner.size:
                continue
            # For the part's words only: a long line's matrix would grow with its square.
            top, left = int(rows.min()), int(columns.min())
            sums = np.zeros((int(rows.max()) - top + 1, int(columns.max()) - left + 1))
            np.add.at(sums, (rows[:, None] - top, columns[None] - left), inner)
            if self.balanced:
                sums = _balanced(sums)
            for tgt_word, of_word in enumerate(sums.tolist(), start=top):
                yield AttendedWord(tgt_word, left, of_word)

    def _spans(self, part: Part) -> tuple[list[tuple[int, int]], Sequence[tuple[int, int]]]:
        """The bytes of each piece of both sides; before the source text they are negative."""
        src, tgt = self.vocabularies.src, self.vocabularies.tgt
        lead = len(part.src_lead.encode())
        src_spans = [
            (begin - lead, end - lead)
            for begin, end in src.encode_with_spans(part.src_lead + part.src_text)[1]
        ]
        if part.tokens_given:
            return src_spans, tgt.decode_with_spans(part.tgt)[1]
        return src_spans, tgt.encode_with_spans(part.tgt_text)[1]


def _balanced(weights: Float[np.ndarray, "tgt src"]) -> Float[np.ndarray, "tgt src"]:
    """The weights, such that rows sum to 1 and no column to much more than others. A column that
    gets little stays small."""
    for _ in range(_ROUNDS):
        weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        weights = weights / (weights.sum(axis=0) + _ADDED)
    return weights


class _Words:
    """The words of a line, and the word that each piece of its parts belongs to."""

    def __init__(self, line: str, places: WordPlaces) -> None:
        spans = places(line)
        self.texts = tuple(line[start:end] for start, end in spans)
        self._line = line.encode()
        self._end = 0  # of the last part, in bytes
        # The word at each byte; at a blank the next one, whose piece may begin there.
        of_bytes: list[int] = []
        word = 0
        for place, character in enumerate(line):
            word += word < len(spans) and place >= spans[word][1]
            of_bytes += [word] * len(character.encode())
        self._of_bytes = np.array([*of_bytes, len(self.texts)], np.int64)

    def of_pieces(self, part: str, spans: Sequence[tuple[int, int]]) -> Int[np.ndarray, " pieces"]:
        """The word of each piece of the line's next part; -1 if it has none."""
        before = self._line.index(part.encode(), self._end)
        self._end = before + len(part.encode())
        begins = np.array([begin for begin, _ in spans], np.int64)
        words = self._of_bytes[before + np.maximum(begins, 0)]
        return np.where((begins >= 0) & (words < len(self.texts)), words, -1)
