"""From a sentence and a model's tokens back to a tree, whatever the tokens are.

Nothing keeps a translation model from leaving brackets open or from losing count of the words. What
is malformed is repaired by fixed rules, from left to right, and every repair is counted:

- of two labels that do not meet, the opening bracket's is taken, unless a bracket further out has
  the closing one's: then those within are closed first;
- a closing bracket with nothing open is left out, as are constituents without words, tokens that
  are none and leaves beyond the last word;
- what is open at the end is closed; words that have no leaf then become the last ones of the last
  outermost constituent.
"""

import collections
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flaxformer_mt.parsing.linearization import LEAF, TAGS, escaped
from flaxformer_mt.parsing.trees import Bracket, Tree

UNKNOWN_TOKEN = "unknown tokens left out"
STRAY = "closing brackets without an opening one left out"
OTHER_LABEL = "closing brackets of another label taken for the open one's"
UNCLOSED = "missing closing brackets added"
EMPTY = "constituents without words left out"
SURPLUS = "leaves beyond the last word left out"
MISSING = "words without a leaf added"
KINDS = (UNKNOWN_TOKEN, STRAY, OTHER_LABEL, UNCLOSED, EMPTY, SURPLUS, MISSING)

# A label or a leaf is one symbol in a tree's text: nothing after a bracket's sign parts it.
_TOKEN = re.compile(r"[()]?[^ \t\r\n\f\v()]+")
_UNKNOWN = "⁇"  # what a vocabulary writes for the unknown token


@dataclasses.dataclass(frozen=True)
class Rebuilt:
    """A tree over all words of its sentence, and how often what was repaired: nothing, if sound."""

    tree: Tree
    repairs: Mapping[str, int]


def rebuild(words: Sequence[str], tokens: Sequence[str]) -> Rebuilt:
    """The inverse of `linearize` where the tokens are a tree's, and its repair where they are not.

    A leaf becomes its word's tag; one that is the word itself tells none, but for marks that are
    their own tags. Round brackets in words are written -LRB- and -RRB-.
    """
    written = tuple(map(escaped, words))
    counts: collections.Counter[str] = collections.Counter()
    found: list[_Constituent] = []
    open_: list[_Constituent] = []
    tags: list[str] = []
    for token in tokens:
        if token in written[len(tags) : len(tags) + 1]:
            tags.append(token if token in TAGS else LEAF)
        elif token == _UNKNOWN or not _TOKEN.fullmatch(token):
            counts[UNKNOWN_TOKEN] += 1
        elif token[0] == "(":
            found.append(_Constituent(token[1:], len(tags), outermost=not open_))
            open_.append(found[-1])
        elif token[0] == ")":
            _close(open_, token[1:], len(tags), counts)
        elif len(tags) == len(words):
            counts[SURPLUS] += 1
        else:
            tags.append(token)
    counts[UNCLOSED] += len(open_)
    for constituent in open_:
        constituent.end = len(tags)
    if missing := len(words) - len(tags):
        counts[MISSING] += missing
        outermost = [item for item in found if item.outermost and item.start < item.end]
        if outermost and outermost[-1].end == len(tags):
            outermost[-1].end = len(words)
        tags += [LEAF] * missing
    brackets = tuple(
        Bracket(item.label, item.start, item.end) for item in found if item.start < item.end
    )
    counts[EMPTY] += len(found) - len(brackets)
    return Rebuilt(Tree(written, tuple(tags), brackets), +counts)


def flat(words: Sequence[str]) -> Tree:
    """The tree that says nothing: the words alone."""
    return rebuild(words, [LEAF] * len(words)).tree


@dataclasses.dataclass
class Repairs:
    """How many sentences were malformed, and every repair by its kind."""

    sentences: int = 0
    malformed: int = 0
    kinds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, rebuilt: Rebuilt) -> None:
        self.sentences += 1
        self.malformed += bool(rebuilt.repairs)
        self.kinds.update(rebuilt.repairs)

    def to_json(self) -> dict[str, Any]:
        """Every kind is there, also those that did not occur."""
        return {
            "sentences": self.sentences,
            "malformed_sentences": self.malformed,
            "repairs": {kind: self.kinds[kind] for kind in KINDS},
        }

    def lines(self) -> Iterator[str]:
        share = f" ({self.malformed / self.sentences:.1%})" if self.sentences else ""
        yield f"{self.sentences:,} sentences, of which {self.malformed:,}{share} were malformed"
        yield from counted(self.kinds)


def counted(counts: Mapping[str, int]) -> Iterator[str]:
    """A line for each thing that occurred."""
    for what, count in counts.items():
        yield f"  {what}: {count:,}"


@dataclasses.dataclass
class _Constituent:
    label: str
    start: int
    end: int = -1
    outermost: bool = False


def _close(
    open_: list[_Constituent], label: str, place: int, counts: collections.Counter[str]
) -> None:
    if not open_:
        counts[STRAY] += 1
        return
    labels = [constituent.label for constituent in reversed(open_)]
    within = labels.index(label) if label in labels else 0
    counts[UNCLOSED] += within
    counts[OTHER_LABEL] += label not in labels
    for _ in range(within + 1):
        open_.pop().end = place
