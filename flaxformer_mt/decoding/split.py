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


def _cut(text: str) -> tuple[int, str]:
    """The best place to cut a text without outer blanks, and the glue between the two parts."""
    middle = len(text) / 2
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
