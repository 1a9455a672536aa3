"""Trees as token sequences, which a translation model can learn (Vinyals et al. 2015), and back.

    (TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))
    She sleeps .
    (S (NP XX )NP (VP XX )VP XX )S

The words are the source. In the target each word is a leaf: `XX`, its tag, or the word itself (Choe
and Charniak 2016). Scores don't use tags, and Vinyals et al. gained about a point of F1 without
them. A bracket and its label are one token.

A model may leave brackets open or lose count of the words. `rebuild` repairs this by fixed rules,
from left to right, and counts each repair:

- if a closing bracket's label differs from the open one's, the open one's is used, unless a bracket
  further out has the closing label: then those inside it are closed first;
- closing brackets with nothing open, constituents without words, unknown tokens and leaves beyond
  the last word are left out;
- brackets still open at the end are closed; words without a leaf then join the last outermost
  constituent.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from flaxformer_mt.parsing.trees import TRACE, Bracket, Tree

Leaves = Literal["xx", "tags", "words"]
LEAF = "XX"
TRACES = "traces removed"
EMPTIED = "constituents of traces alone removed"
SHORTENED = "labels shortened"
UNKNOWN_TOKEN = "unknown tokens left out"
STRAY = "closing brackets without an opening one left out"
OTHER_LABEL = "closing brackets of another label taken for the open one's"
UNCLOSED = "missing closing brackets added"
EMPTY = "constituents without words left out"
SURPLUS = "leaves beyond the last word left out"
MISSING = "words without a leaf added"
KINDS = (UNKNOWN_TOKEN, STRAY, OTHER_LABEL, UNCLOSED, EMPTY, SURPLUS, MISSING)

# Penn Treebank II (Bies et al. 1995), and NML of its later editions.
_PHRASES = (
    "ADJP ADVP CONJP FRAG INTJ LST NAC NML NP NX PP PRN PRT QP RRC S SBAR SBARQ SINV SQ UCP VP "
    "WHADJP WHADVP WHNP WHPP X"
)
TAGS = frozenset(
    "# $ '' , -LRB- -RRB- . : AFX CC CD DT EX FW HYPH IN JJ JJR JJS LS MD NN NNP NNPS NNS PDT POS "
    "PRP PRP$ RB RBR RBS RP SYM TO UH VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB ``".split()
)
_TOKEN = re.compile(r"[()]?[^ \t\r\n\f\v()]+")
_UNKNOWN = "⁇"  # how a vocabulary writes the unknown token


def normal_form(tree: Tree) -> tuple[Tree, Counter[str]]:
    """The tree without traces and with plain labels, and how often each was changed."""
    counts: Counter[str] = Counter()
    spoken = [tag != TRACE for tag in tree.tags]
    # How many words are left before each place.
    place = [0, *itertools.accumulate(spoken)]
    counts[TRACES] = len(spoken) - place[-1]
    brackets = []
    for label, start, end in tree.brackets:
        if place[start] == place[end]:
            counts[EMPTIED] += 1
            continue
        brackets.append(Bracket(plain_label(label), place[start], place[end]))
        counts[SHORTENED] += brackets[-1].label != label
    tags = [tag.partition("|")[0] or tag for tag in itertools.compress(tree.tags, spoken)]
    words = tuple(itertools.compress(tree.words, spoken))
    return Tree(words, tuple(tags), tuple(brackets)), +counts


def plain_label(label: str) -> str:
    """NP for NP-SBJ-1, NP=2 or NP|PP; a label that begins with such a sign is kept."""
    return re.split("[-=|]", label)[0] or label


def linearize(tree: Tree, leaves: Leaves = "xx") -> list[str]:
    """The target's tokens of a tree in normal form."""
    written = {"xx": (LEAF,) * len(tree.words), "tags": tree.tags, "words": tree.words}
    return list(tree.tokens(written[leaves]))


def penn_tokens() -> tuple[str, ...]:
    """Every token that a linearised tree of the Penn Treebank may have."""
    brackets = (f"{sign}{label}" for label in _PHRASES.split() for sign in "()")
    return (LEAF, *brackets, *sorted(TAGS))


def bracket_types(
    types: Sequence[str],
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """The places among `types` of each opening bracket with its closing one, and of leaves.

    Empty texts and brackets without a counterpart are neither.
    """
    places = {text: place for place, text in enumerate(types)}
    labels = [text[1:] for text in types if text[:1] == "("]
    pairs = [
        (places[f"({label}"], places[f"){label}"])
        for label in labels
        if label and f"){label}" in places
    ]
    leaves = [place for place, text in enumerate(types) if text and text[0] not in "()"]
    return tuple(pairs), tuple(leaves)


def escaped(text: str) -> str:
    """Round brackets in words, as the Penn Treebank writes them."""
    return text.replace("(", "-LRB-").replace(")", "-RRB-")


def tokens_of(line: str) -> list[str]:
    """A line's tokens, separated by blanks and tabs; other spaces are text."""
    return [token for token in re.split("[ \t]+", line) if token]


@dataclasses.dataclass(frozen=True)
class Rebuilt:
    """A tree over all words of its sentence, and the count of each kind of repair."""

    tree: Tree
    repairs: Mapping[str, int]


def rebuild(words: Sequence[str], tokens: Sequence[str]) -> Rebuilt:
    """The inverse of `linearize`, with repairs if the tokens aren't a tree's.

    A leaf becomes its word's tag; a leaf that is the word itself only if it is a mark that is its
    own tag. Round brackets in words are escaped.
    """
    reading = _Reading(words)
    for token in tokens:
        reading.add(token)
    return reading.rebuilt()


def flat(words: Sequence[str]) -> Tree:
    """The tree that says nothing: the words alone."""
    return rebuild(words, [LEAF] * len(words)).tree


@dataclasses.dataclass
class Repairs:
    """How many sentences were malformed, and every repair by its kind."""

    sentences: int = 0
    malformed: int = 0
    kinds: Counter[str] = dataclasses.field(default_factory=Counter)

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
    """A line for each kind that occurred."""
    for kind, count in counts.items():
        yield f"  {kind}: {count:,}"


@dataclasses.dataclass
class _Constituent:
    label: str
    start: int
    end: int = -1
    outermost: bool = False

    @property
    def has_words(self) -> bool:
        return self.start < self.end


class _Reading:
    """A tree whose tokens are read from left to right, and the repairs so far."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(map(escaped, words))
        self._tags: list[str] = []  # of the words that have a leaf
        self._constituents: list[_Constituent] = []
        self._open: list[_Constituent] = []
        self._repairs: Counter[str] = Counter()

    def add(self, token: str) -> None:
        """Reads the next token."""
        next_word = self._words[len(self._tags) : len(self._tags) + 1]
        if token in next_word:
            self._tags.append(token if token in TAGS else LEAF)
        elif token == _UNKNOWN or not _TOKEN.fullmatch(token):
            self._repairs[UNKNOWN_TOKEN] += 1
        elif token[0] == "(":
            self._begin(token[1:])
        elif token[0] == ")":
            self._end(token[1:])
        elif not next_word:
            self._repairs[SURPLUS] += 1
        else:
            self._tags.append(token)

    def _begin(self, label: str) -> None:
        constituent = _Constituent(label, len(self._tags), outermost=not self._open)
        self._constituents.append(constituent)
        self._open.append(constituent)

    def _end(self, label: str) -> None:
        """Ends the innermost open constituent of that label, or the innermost one."""
        if not self._open:
            self._repairs[STRAY] += 1
            return
        labels = [constituent.label for constituent in reversed(self._open)]
        inside = labels.index(label) if label in labels else 0
        self._repairs[UNCLOSED] += inside
        self._repairs[OTHER_LABEL] += label not in labels
        for _ in range(inside + 1):
            self._open.pop().end = len(self._tags)

    def rebuilt(self) -> Rebuilt:
        """The tree, after the last token."""
        self._repairs[UNCLOSED] += len(self._open)
        for constituent in self._open:
            constituent.end = len(self._tags)
        self._add_missing_leaves()
        brackets = tuple(
            Bracket(constituent.label, constituent.start, constituent.end)
            for constituent in self._constituents
            if constituent.has_words
        )
        self._repairs[EMPTY] += len(self._constituents) - len(brackets)
        return Rebuilt(Tree(self._words, tuple(self._tags), brackets), +self._repairs)

    def _add_missing_leaves(self) -> None:
        """Gives the words without a leaf to the last outermost constituent, if it is the last."""
        missing = len(self._words) - len(self._tags)
        if not missing:
            return
        self._repairs[MISSING] += missing
        outermost = [
            constituent
            for constituent in self._constituents
            if constituent.outermost and constituent.has_words
        ]
        if outermost and outermost[-1].end == len(self._tags):
            outermost[-1].end = len(self._words)
        self._tags += [LEAF] * missing
