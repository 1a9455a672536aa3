"""Constituency trees, and the bracketed text that treebanks write them in.

    (TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))

A tree is stored flat: its words, their tags, and its constituents as labelled spans. The outermost
bracket, labelled TOP, ROOT, S1 or not at all, isn't a constituent.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from flaxformer_mt.errors import UserError

ROOTS = ("", "TOP", "ROOT", "S1")
TRACE = "-NONE-"  # the tag of a word that isn't spoken
_PARENTHESES = ("(", ")")
# Not `\S`: a sentence's word may contain a no-break space.
_SYMBOL = re.compile(r"[()]|[^ \t\r\n\f\v()]+")


class TreeError(UserError):
    """Text that isn't a tree; the message names the file and line if known."""


class Bracket(NamedTuple):
    """A constituent over the words from `start` up to, but not including, `end`."""

    label: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Tree:
    """A tree whose `brackets` are in the order in which they open, outer ones first."""

    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    brackets: tuple[Bracket, ...] = ()

    def tokens(self, leaves: Iterable[str]) -> Iterator[str]:
        """The tree from left to right: `(LABEL`, a leaf for each word, `)LABEL`."""
        coming, open_ = list(reversed(self.brackets)), []
        for place, leaf in enumerate(leaves, start=1):
            while coming and coming[-1].start < place:
                open_.append(coming.pop())
                yield f"({open_[-1].label}"
            yield leaf
            while open_ and open_[-1].end == place:
                yield f"){open_.pop().label}"

    def __str__(self) -> str:
        """The tree on one line, within `(TOP ...)`."""
        leaves = (f"({tag} {word})" for tag, word in zip(self.tags, self.words, strict=True))
        parts = (")" if token[0] == ")" else f" {token}" for token in self.tokens(leaves))
        return f"(TOP{''.join(parts)})"


def read(lines: Iterable[str], name: str) -> Iterator[tuple[int, Tree]]:
    """The trees in `lines`, each with the number of its first line, counted from 1.

    A tree may span lines, and a line may hold several trees. Raises TreeError.
    """
    symbols: list[str] = []
    depth = begin = 0
    for number, line in enumerate(lines, start=1):
        for symbol in _SYMBOL.findall(line):
            if depth == 0 and symbol != "(":
                what = "a closing bracket" if symbol == ")" else repr(symbol)
                raise TreeError(f"{name}:{number}: {what} outside of any tree")
            begin = begin if depth else number
            symbols.append(symbol)
            depth += (symbol == "(") - (symbol == ")")
            if depth == 0:
                try:
                    yield begin, _tree(symbols)
                except TreeError as error:
                    raise TreeError(f"{name}:{begin}: {error}") from error
                symbols = []
    if depth:
        raise TreeError(f"{name}:{begin}: the tree that begins here lacks {depth} closing brackets")


def _tree(symbols: list[str]) -> Tree:
    words: list[str] = []
    tags: list[str] = []
    brackets: list[Bracket | None] = []
    open_: list[tuple[int, str, int]] = []
    at = 0
    while at < len(symbols):
        symbol = symbols[at]
        at += 1
        if symbol == ")":
            place, label, start = open_.pop()
            if label in ROOTS and (not open_ or start == len(words)):
                continue  # the outermost bracket, or one that says there is no parse
            if start == len(words):
                raise TreeError(f"({label} ) contains no word")
            if not label:
                raise TreeError("a bracket within the tree has no label")
            brackets[place] = Bracket(label, start, len(words))
            continue
        if symbol != "(":
            raise TreeError(f"{symbol!r} has no tag: write each word as (TAG word)")
        label = symbols[at] if symbols[at] not in _PARENTHESES else ""
        at += bool(label)
        if symbols[at] not in _PARENTHESES:
            if symbols[at + 1] != ")":
                raise TreeError(f"({label} contains more than {symbols[at]!r}: a tag has one word")
            tags.append(label)
            words.append(symbols[at])
            at += 2
            continue
        open_.append((len(brackets), label, len(words)))
        brackets.append(None)
    return Tree(tuple(words), tuple(tags), tuple(item for item in brackets if item is not None))
