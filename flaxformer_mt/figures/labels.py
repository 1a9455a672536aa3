"""Subword pieces as people read them."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence

BOUNDARY = "\u2581"  # SentencePiece's mark of a word's beginning
MARKS = {"<s>": "‹begin›", "</s>": "‹end›", "<unk>": "‹unknown›"}
LONGEST = 32  # characters of a label

# C0 controls and DEL as their pictures; what turns the direction of the text around is replaced.
_VISIBLE = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
_VISIBLE |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)


def shown(piece: str) -> str:
    """A piece as a label: what goes on with a word has a hyphen, what begins one has nothing.

    Words begin more often than they go on, so that this is the quieter way round.
    """
    if piece in MARKS:
        return MARKS[piece]
    if piece.startswith(BOUNDARY):
        text = piece[1:].replace(BOUNDARY, " ") or BOUNDARY
    else:
        text = f"-{piece}" if any(map(_is_written, piece)) else piece
    text = text.translate(_VISIBLE)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def words(pieces: Sequence[str]) -> list[tuple[str, range]]:
    """The words that pieces spell, and the places of their pieces; marks are words of their own."""
    begins = [
        place
        for place, piece in enumerate(pieces)
        if place == 0 or piece in MARKS or pieces[place - 1] in MARKS or piece.startswith(BOUNDARY)
    ]
    spans = [range(*ends) for ends in itertools.pairwise([*begins, len(pieces)])]
    return [("".join(pieces[i] for i in span).replace(BOUNDARY, ""), span) for span in spans]


def whole_word(pieces: Sequence[str], place: int) -> tuple[int, ...]:
    """The places of the word to which a piece belongs, without the punctuation beside it."""
    (span,) = (span for _, span in words(pieces) if place in span)
    apart = punctuation(pieces)
    return tuple(other for other in span if other == place or other not in apart)


def core(word: str) -> str:
    """A word without the punctuation around it, in lower case."""
    inside = [place for place, character in enumerate(word) if _is_written(character)]
    return word[inside[0] : inside[-1] + 1].casefold() if inside else word.casefold()


def punctuation(pieces: Sequence[str]) -> tuple[int, ...]:
    """The places of pieces without a letter or a digit, marks left out."""
    return tuple(
        place
        for place, piece in enumerate(pieces)
        if piece not in MARKS and not any(map(_is_written, piece))
    )


def _is_written(character: str) -> bool:
    """Whether it is a letter or a digit of any script."""
    return unicodedata.category(character)[0] in "LN"
