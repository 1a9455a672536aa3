"""Joins the lines of hard-wrapped text."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import regex

from flaxformer_mt.config.languages import UNSPACED_LETTER

_SOFT_HYPHEN = "\u00ad"
# Letters of scripts without blanks between words, and the punctuation of Chinese and Japanese.
_UNSPACED = regex.compile(
    rf"{UNSPACED_LETTER}|[\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff65]"
)
_HYPHENATED = regex.compile(r"\p{L}[-\u2010]$")


def joined(lines: Sequence[str]) -> str:
    """A paragraph's lines as one, without blanks around each.

    A blank goes between two, unless the script has none there, the first ends with a hyphen after a
    letter and the next begins with a letter ("well-" and "known"), or with a soft hyphen, which is
    dropped.
    """
    plain = [line.strip() for line in lines]
    parts = [plain[0]] if plain else []
    for before, after in itertools.pairwise(plain):
        parts += [_between(before, after), after]
    return "".join(parts).replace(f"{_SOFT_HYPHEN}\n", "")


def _between(before: str, after: str) -> str:
    if before.endswith(_SOFT_HYPHEN):
        return "\n"  # to be found again with its hyphen
    if _HYPHENATED.search(before) and after[:1].isalpha():
        return ""
    return "" if _is_unspaced(before[-1:]) and _is_unspaced(after[:1]) else " "


@functools.lru_cache(maxsize=1024)
def _is_unspaced(character: str) -> bool:
    return _UNSPACED.match(character) is not None
