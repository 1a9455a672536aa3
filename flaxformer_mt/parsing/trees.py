"""Constituency trees, and the brackets that treebanks write them in.

    (TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))

A tree is flat here: its words with their tags, and its constituents as labelled spans. So depth
costs nothing, and what is compared in scoring is what there is. The outermost bracket, which some
treebanks label TOP, ROOT or S1 and others not at all, is no constituent.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from flaxformer_mt.errors import UserError

ROOTS = ("", "TOP", "ROOT", "S1")
TRACE = "-NONE-"  # the tag of a word that nobody said
_PARENTHESES = ("(", ")")
# Not `\S`: sentences have words with no-break blanks in them.
_SYMBOL = re.compile(r"[()]|[^ \t\r\n\f\v()]+")


class TreeError(UserError):
    """Text that is no tree; the message names the file and the line where they are known."""


class Bracket(NamedTuple):
    """A constituent: words `start` to `end`, the latter not included, of which there is one."""

    label: str
    start: int
    end: int


class Step(NamedTuple):
    """What one meets on the way through a tree from left to right."""

    kind: Literal["open", "word", "close"]
    label: str  # of the constituent, or the word's tag
    place: int  # the word's; of a constituent, the first word's


@dataclasses.dataclass(frozen=True)
class Tree:
    """A tree, in which `brackets` stand as they open: from left to right, outer ones first."""

    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    brackets: tuple[Bracket, ...] = ()

    def steps(self) -> Iterator[Step]:
        """Every opening, word and closing, in the order of the text."""
        opening, open_ = 0, []
        for place, tag in enumerate(self.tags):
            while opening < len(self.brackets) and self.brackets[opening].start == place:
                open_.append(self.brackets[opening])
                yield Step("open", open_[-1].label, place)
                opening += 1
            yield Step("word", tag, place)
            while open_ and open_[-1].end == place + 1:
                closed = open_.pop()
                yield Step("close", closed.label, closed.start)

    def __str__(self) -> str:
        """The tree in one line, within `(TOP ...)`."""
        parts = ["(TOP"]
        for step in self.steps():
            if step.kind == "open":
                parts.append(f" ({step.label}")
            elif step.kind == "word":
                parts.append(f" ({step.label} {self.words[step.place]})")
            else:
                parts.append(")")
        return "".join((*parts, ")"))


def read(lines: Iterable[str], name: str) -> Iterator[tuple[int, Tree]]:
    """The trees in lines of text, each with the number of the line, from 1, that it begins in.

    A tree may span lines, and a line may hold several. Raises TreeError: `name`, line, what.
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
                raise TreeError(f"({label} ) holds no word")
            if not label:
                raise TreeError("a bracket within the tree has no label")
            brackets[place] = Bracket(label, start, len(words))
            continue
        if symbol != "(":
            raise TreeError(
                f"{symbol!r} has no tag: a word stands in a bracket of its own, (TAG word)"
            )
        label = symbols[at] if symbols[at] not in _PARENTHESES else ""
        at += bool(label)
        if symbols[at] not in _PARENTHESES:
            if symbols[at + 1] != ")":
                raise TreeError(f"({label} holds {symbols[at]!r} and more: a tag has one word")
            tags.append(label)
            words.append(symbols[at])
            at += 2
            continue
        open_.append((len(brackets), label, len(words)))
        brackets.append(None)
    return Tree(tuple(words), tuple(tags), tuple(item for item in brackets if item is not None))
