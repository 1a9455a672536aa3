"""What a search may generate: the settings that are compiled into it, and what they rule out."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxformer_mt.data.vocabulary import BLANK, EOS, PAD, UNK, Vocabularies
from flaxformer_mt.decoding.segments import DecodingError
from flaxformer_mt.parsing.linearization import bracket_types

Index = Int[Array, ""]
Tokens = Int[Array, "rows beams length"]
Logits = Float[Array, "rows beams vocab"]
TypeMask = Bool[Array, "rows beams vocab"]


@dataclasses.dataclass(frozen=True)
class Brackets:
    """The types that trees are written in (parsing/linearization.py); no other is generated."""

    pairs: tuple[tuple[int, int], ...]  # an opening bracket and the one that closes it
    leaves: tuple[int, ...]  # all others
    within: tuple[int, ...] = ()  # leaves that continue a word; if any, they are the source's own

    @property
    def of_source(self) -> bool:
        return bool(self.within)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """Raises ValueError for settings that contradict each other."""

    beam_size: int  # hypotheses kept at each step; 1 is greedy
    n_best: int = 1
    spare: int = 0  # finished hypotheses kept besides, for those whose text is another's
    suppress: tuple[int, ...] = ()  # never generated, as padding and the begin mark
    ends_among: int = 0  # only the likeliest so many continuations end a hypothesis (0: any)
    patience: int = 0  # so many ended hypotheses are enough for a group (0: no number is)
    groups: int = 1  # of hypotheses, which shun one another's tokens: diverse beam search
    coverage: bool = False  # hypotheses that leave parts of the source unattended score lower
    no_repeat: int = 0  # no sequence of this many tokens occurs twice in an output (0: any may)
    sample: bool = False  # draw each hypothesis from the model instead of searching
    top_k: int = 0  # of the likeliest k tokens (0: of all)
    trees: Brackets | None = None  # outputs are trees over the words of the source

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beam_size:
            raise ValueError(f"n_best = {self.n_best} must be 1 to beam_size = {self.beam_size}")
        if self.groups < 1 or self.beam_size % self.groups:
            groups = f"{self.groups} groups"
            raise ValueError(f"beam_size = {self.beam_size} must be divisible by {groups}")
        if self.no_repeat < 0:
            raise ValueError(f"no_repeat = {self.no_repeat} must be at least 0")

    @property
    def slots(self) -> int:
        """Finished hypotheses kept: in each group as many as it can have of `n_best` and `spare`,
        since groups may come to the same output."""
        return min(self.n_best + self.spare, self.beam_size // self.groups) * self.groups


class Allowed(NamedTuple):
    """Which types may be the next token: `only`, or any of `free` that is not `banned`."""

    only: Int[Array, " rows"]  # -1: there is none such
    free: np.ndarray  # [vocab] bool: a compiled search is one for these
    banned: TypeMask | None

    def of_beams(self, beams: slice) -> "Allowed":
        banned = self.banned
        return self._replace(banned=None if banned is None else banned[:, beams])

    def without(self, banned: TypeMask) -> "Allowed":
        return self._replace(banned=banned if self.banned is None else self.banned | banned)

    def mask(self, beams: int) -> TypeMask:
        free = jnp.asarray(self.free)[None, None]
        if self.banned is not None:
            free = free & ~self.banned
        # A TPU would write out a mask by rows before it reads it for each beam.
        only = jnp.broadcast_to(self.only[:, None, None], (len(self.only), beams, 1))
        return jnp.where(only < 0, free, np.arange(len(self.free))[None, None] == only)


def repeats(tokens: Tokens, position: Index, n: int, *, vocab: int) -> TypeMask:
    """The types that, as token number `position`, would end an n-gram for the second time."""
    rows, beams, length = tokens.shape
    starts = jnp.arange(length)
    # An n-gram that began at `start` ended before now; the last n - 1 tokens are its beginning.
    same = jnp.broadcast_to((starts + n - 1 < position)[None, None], tokens.shape)

    def compare(offset: Array, same: Array) -> Array:
        then = jnp.roll(tokens, -offset, axis=2)
        last = jnp.take(tokens, jnp.maximum(position - (n - 1) + offset, 0), axis=2)
        return same & (then == last[:, :, None])

    # A loop, so that the program is as small for a large n.
    same = jax.lax.fori_loop(0, n - 1, compare, same)
    ended_with = jnp.roll(tokens, -(n - 1), axis=2)
    ended_with = jnp.where(same, ended_with, vocab)  # out of range: dropped
    row = jnp.arange(rows)[:, None, None]
    beam = jnp.arange(beams)[None, :, None]
    banned = jnp.zeros((rows, beams, vocab), bool)
    return banned.at[row, beam, ended_with].set(True, mode="drop")


def brackets_of(vocabularies: Vocabularies) -> Brackets:
    """The types of a parser's target vocabulary; in one that both sides share, leaves are the
    tokens of the source. Raises DecodingError for another vocabulary."""
    kinds, shared = vocabularies.tgt.types(), vocabularies.shared
    texts = [kind.text.removeprefix(BLANK) if kind.plain else "" for kind in kinds]
    pairs, leaves = bracket_types(texts)
    within: tuple[int, ...] = ()
    if shared:
        leaves = tuple(sorted(set(range(UNK + 1, len(kinds))).difference(*pairs)))
        within = tuple(each for each in leaves if not kinds[each].text.startswith(BLANK))
    if not pairs or not leaves:
        raise DecodingError("decoding.outputs = trees needs a target vocabulary with brackets")
    return Brackets(pairs, leaves, within)


def pooled(trees: Brackets, logits: Logits, may: TypeMask) -> Logits:
    """The logits of a search that knows which leaf comes next, and which bracket closes.

    It has the probability that any leaf comes, or that any bracket closes. Otherwise a model that
    has lost its place would rather open brackets for ever than say a word that it does not expect.
    """
    for among in (trees.leaves, [close for _, close in trees.pairs]):
        its = np.isin(np.arange(logits.shape[-1]), among)
        of_all = jax.nn.logsumexp(logits, axis=-1, keepdims=True, where=its)
        logits = jnp.where(its, jnp.where(may, of_all, -jnp.inf), logits)
    return logits


def breaks_tree(
    trees: Brackets,
    tokens: Tokens,
    words: Int[Array, " rows"],
    source: Int[Array, "rows src_length"],
    spare: Int[Array, " rows"],
    *,
    vocab: int,
) -> TypeMask:
    """The types that, as the next token, would make a tree of `words` leaves impossible.

    With `trees.of_source` the leaves are the tokens of `source`. `spare` tokens may follow the next
    one: no bracket is opened that there would be no room to close, or no leaf to fill.
    """
    opening, closing = np.array(trees.pairs, np.int32).T
    deeper = np.zeros(vocab, np.int32)
    is_leaf = np.zeros(vocab, bool)
    closes = np.zeros(vocab, int)
    deeper[opening] = 1
    deeper[closing] = -1
    closes[opening] = closing
    is_leaf[list(trees.leaves)] = True
    types = np.arange(vocab)

    places = jnp.where(tokens == PAD, -1, np.arange(tokens.shape[2])[None, None])
    steps = jnp.asarray(deeper)[tokens]
    depths = jnp.cumsum(steps, axis=2)
    depth = depths[:, :, -1:]
    said = ((tokens > UNK) & (steps == 0)).sum(axis=2)
    left = words[:, None, None] - said[:, :, None]
    # The innermost open bracket is the last one that opened at the present depth.
    innermost = jnp.where((steps == 1) & (depths == depth), places, -1).max(axis=2, keepdims=True)
    is_empty = innermost == places.max(axis=2, keepdims=True)
    bracket = jnp.take_along_axis(tokens, jnp.maximum(innermost, 0), axis=2)

    def among(which: np.ndarray) -> np.ndarray:
        return which[None, None]

    opens = (left > 0) & (left + depth + 2 <= spare[:, None, None]) & among(deeper == 1)
    closed = (depth > 0) & ~is_empty & (among(types) == jnp.asarray(closes)[bracket])
    ends = (left <= 0) & (depth == 0) & among(types == EOS)
    brackets, leaf = opens | closed, among(is_leaf)
    if trees.of_source:
        at = jnp.minimum(said, source.shape[1] - 1)
        following = jnp.take_along_axis(source, at, axis=1)[:, :, None]
        # Within a word there is no bracket.
        continues = np.isin(types, trees.within)
        brackets &= (left <= 0) | ~jnp.asarray(continues)[following]
        leaf = among(types) == following
    return ~(brackets | ends | ((left > 0) & leaf))
