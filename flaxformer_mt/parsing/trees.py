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
        coming = list(reversed(self.brackets))
        open_: list[Bracket] = []
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
                outside = "a closing bracket" if symbol == ")" else repr(symbol)
                raise TreeError(f"{name}:{number}: {outside} outside of any tree")
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
    """The tree of symbols whose brackets match. Raises TreeError."""
    parser = _Parser(symbols)
    place = 0
    while place < len(symbols):
        place = parser.parse(place)
    return parser.tree()


class _OpenBracket(NamedTuple):
    number: int  # in the order of opening
    label: str
    start: int  # in words


class _Parser:
    """A tree whose symbols are read from left to right."""

    def __init__(self, symbols: list[str]) -> None:
        self._symbols = symbols
        self._words: list[str] = []
        self._tags: list[str] = []
        self._brackets: list[Bracket | None] = []  # None: open, or no constituent
        self._open: list[_OpenBracket] = []

    def parse(self, place: int) -> int:
        """Reads a bracket, or a word with its tag, at a place; the place after it."""
        symbol = self._symbols[place]
        if symbol == ")":
            self._close()
            return place + 1
        if symbol != "(":
            raise TreeError(f"{symbol!r} has no tag: write each word as (TAG word)")

        place += 1
        label = self._symbols[place] if self._symbols[place] not in _PARENTHESES else ""
        place += bool(label)
        word = self._symbols[place]
        if word in _PARENTHESES:
            self._open.append(_OpenBracket(len(self._brackets), label, len(self._words)))
            self._brackets.append(None)
            return place
        if self._symbols[place + 1] != ")":
            raise TreeError(f"({label} contains more than {word!r}: a tag has one word")
        self._tags.append(label)
        self._words.append(word)
        return place + 2

    def _close(self) -> None:
        number, label, start = self._open.pop()
        is_empty = start == len(self._words)
        if label in ROOTS and (not self._open or is_empty):
            return  # the outermost bracket, or one that says there is no parse
        if is_empty:
            raise TreeError(f"({label} ) contains no word")
        if not label:
            raise TreeError("a bracket within the tree has no label")
        self._brackets[number] = Bracket(label, start, len(self._words))

    def tree(self) -> Tree:
        brackets = tuple(bracket for bracket in self._brackets if bracket is not None)
        return Tree(tuple(self._words), tuple(self._tags), brackets)
