"""Cutting a text that is too long for the model where it hurts least."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable

# From the best place for a cut to the worst; a cut is at the end of a match.
_BOUNDARIES = (
    re.compile(r"[.!?…][\"'”’»)\]]*\s+|[。！？][”’」』）]*\s*"),  # between sentences
    re.compile(r"[,;:]\s+|\s[-–—]+\s+|[，；：、]\s*"),  # between clauses
    re.compile(r"\s+"),  # between words
)


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a text, and what goes between its translation and the next part's."""

    text: str
    glue: str


def split_to_fit(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """The text in pieces that fit, in order; only blanks between them are left out.

    A part that does not fit is cut in two at the sentence end nearest to its middle; where it has
    none, between clauses, then between words, then inside a word.

    Raises ValueError if a single character does not fit.
    """
    pieces = []
    waiting = [Piece(text.strip(), "")]
    while waiting:
        piece = waiting.pop()
        if fits(piece.text):
            pieces.append(piece)
            continue
        cut, glue = _cut(piece.text)
        waiting.append(Piece(piece.text[cut:].lstrip(), piece.glue))
        waiting.append(Piece(piece.text[:cut].rstrip(), glue))
    return pieces


def split_pair_to_fit(
    src: str, tgt: str, fits: Callable[[str, str], bool]
) -> list[tuple[Piece, Piece]]:
    """A text and its translation in as many pieces, pair by pair such that `fits(src, tgt)`.

    The source is cut as `split_to_fit` cuts it, the translation at a boundary of the best kind that
    it has, nearest to the same share of its length: which words belong together is not known.

    Raises ValueError if a single character does not fit.
    """
    pairs = []
    waiting = [(Piece(src.strip(), ""), Piece(tgt.strip(), ""))]
    while waiting:
        pair = waiting.pop()
        if fits(pair[0].text, pair[1].text):
            pairs.append(pair)
            continue
        if max(len(piece.text) for piece in pair) < 2:
            raise ValueError(f"the characters {pair[0].text!r} and {pair[1].text!r} do not fit")
        (src_first, src_rest), share = _halves(pair[0], 0.5)
        (tgt_first, tgt_rest), _ = _halves(pair[1], share)
        waiting += [(src_rest, tgt_rest), (src_first, tgt_first)]
    return pairs


def _halves(piece: Piece, share: float) -> tuple[tuple[Piece, Piece], float]:
    """Two parts of a text, cut near a share of its length, and the share at which that was."""
    text = piece.text
    if len(text) < 2:
        return (Piece(text, ""), Piece("", piece.glue)), share
    cut, glue = _cut(text, share)
    first, rest = Piece(text[:cut].rstrip(), glue), Piece(text[cut:].lstrip(), piece.glue)
    return (first, rest), cut / len(text)


def _cut(text: str, share: float = 0.5) -> tuple[int, str]:
    """The best place to cut a text without outer blanks, and the glue between the two parts.

    Of places of one kind it is the one nearest to `share` of the text's length.
    """
    middle = share * len(text)
    for boundary in _BOUNDARIES:
        ends = [match.end() for match in boundary.finditer(text) if match.end() < len(text)]
        if ends:
            return min(ends, key=lambda end: abs(end - middle)), " "
    # Not before an accent that would lose its letter, if there is such a place.
    inner = range(1, len(text))
    places = [place for place in inner if not unicodedata.combining(text[place])] or inner
    if not places:
        raise ValueError(f"the character {text!r} alone does not fit")
    return min(places, key=lambda place: abs(place - middle)), ""
