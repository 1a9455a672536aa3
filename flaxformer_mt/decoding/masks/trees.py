"""Outputs are trees over the words of the source: only what keeps a tree possible comes next."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from flaxformer_mt.data.vocabulary import BLANK, EOS, PAD, UNK, Vocabularies
from flaxformer_mt.decoding.errors import DecodingError
from flaxformer_mt.decoding.masks.base import Generated, MaskArrays, Tokens, TypeFlags
from flaxformer_mt.decoding.source import Source, Types
from flaxformer_mt.decoding.top_k import Logits
from flaxformer_mt.parsing.linearization import bracket_types


@dataclasses.dataclass(frozen=True)
class Brackets:
    """The types that trees are written in (parsing/linearization.py); no other is generated."""

    pairs: tuple[tuple[int, int], ...]  # an opening bracket and the one that closes it
    leaves: tuple[int, ...]  # all others
    within: tuple[int, ...] = ()  # leaves that continue a word; if any, they are the source's own

    @property
    def of_source(self) -> bool:
        """Whether leaves are the tokens of the source."""
        return bool(self.within)


@dataclasses.dataclass(frozen=True)
class TreeShape:
    """Bans the types after which an output could be no tree over its source's words."""

    brackets: Brackets

    def arrays(self, sources: Sequence[Source], types: Types, shape: tuple[int, int]) -> MaskArrays:
        """By rows: the number of a tree's leaves, and the source's tokens."""
        words = np.zeros(shape[0], np.int32)
        tokens = np.full(shape, PAD, np.int32)
        for row, source in enumerate(sources):
            length = len(source.tokens)
            words[row] = length - 1 if self.brackets.of_source else source.words
            tokens[row, :length] = source.tokens
        return MaskArrays(rows=(words, tokens))

    def banned(self, arrays: MaskArrays, generated: Generated) -> TypeFlags:
        """As `Mask.banned`."""
        words, source = arrays.rows
        spare = generated.limits - generated.position - 1
        return breaks_tree(
            self.brackets, generated.tokens, words, source, spare, vocab=generated.vocab
        )


def brackets_of(vocabularies: Vocabularies) -> Brackets:
    """The types of a parser's target vocabulary; in one that both sides share, leaves are the
    tokens of the source. Raises DecodingError for another vocabulary."""
    kinds = vocabularies.tgt.types()
    texts = [kind.text.removeprefix(BLANK) if kind.plain else "" for kind in kinds]
    pairs, leaves = bracket_types(texts)
    within: tuple[int, ...] = ()
    if vocabularies.shared:
        leaves = tuple(sorted(set(range(UNK + 1, len(kinds))).difference(*pairs)))
        within = tuple(leaf for leaf in leaves if not kinds[leaf].text.startswith(BLANK))
    if not pairs or not leaves:
        raise DecodingError("decoding.outputs = trees needs a target vocabulary with brackets")
    return Brackets(pairs, leaves, within)


def pooled(trees: Brackets, logits: Logits, allowed: TypeFlags) -> Logits:
    """The logits of a search that knows which leaf comes next, and which bracket closes.

    It has the probability that any leaf comes, or that any bracket closes. Otherwise a model that
    has lost its place would rather open brackets for ever than say a word that it does not expect.
    """
    for types in (trees.leaves, [close for _, close in trees.pairs]):
        pool = np.isin(np.arange(logits.shape[-1]), types)
        of_all = jax.nn.logsumexp(logits, axis=-1, keepdims=True, where=pool)
        logits = jnp.where(pool, jnp.where(allowed, of_all, -jnp.inf), logits)
    return logits


def breaks_tree(
    trees: Brackets,
    tokens: Tokens,
    words: Int[Array, " rows"],
    source: Int[Array, "rows src_length"],
    spare: Int[Array, " rows"],
    *,
    vocab: int,
) -> TypeFlags:
    """The types that, as the next token, would make a tree of `words` leaves impossible.

    With `trees.of_source` the leaves are the tokens of `source`. `spare` tokens may follow the next
    one: no bracket is opened that there would be no room to close, or no leaf to fill.
    """
    opening, closing = np.array(trees.pairs, np.int32).T
    deeper = np.zeros(vocab, np.int32)
    deeper[opening] = 1
    deeper[closing] = -1
    closes = np.zeros(vocab, int)
    closes[opening] = closing
    types = np.arange(vocab)[None, None]  # --> [1, 1, vocab]

    steps = jnp.asarray(deeper)[tokens]
    depths = jnp.cumsum(steps, axis=2)
    depth = depths[:, :, -1:]  # --> [rows, beams, 1]
    leaves_said = ((tokens > UNK) & (steps == 0)).sum(axis=2)  # --> [rows, beams]
    left = words[:, None, None] - leaves_said[:, :, None]
    bracket, is_empty = _innermost(tokens, steps, depths)

    opens = (left > 0) & (left + depth + 2 <= spare[:, None, None]) & (deeper == 1)[None, None]
    closed = (depth > 0) & ~is_empty & (types == jnp.asarray(closes)[bracket])
    ends = (left <= 0) & (depth == 0) & (types == EOS)
    brackets = opens | closed
    leaf: Any = np.isin(types, trees.leaves)
    if trees.of_source:
        place = jnp.minimum(leaves_said, source.shape[1] - 1)
        following = jnp.take_along_axis(source, place, axis=1)[:, :, None]
        # Within a word there is no bracket.
        continues = np.isin(types[0, 0], trees.within)
        brackets &= (left <= 0) | ~jnp.asarray(continues)[following]
        leaf = types == following
    return ~(brackets | ends | ((left > 0) & leaf))


def _innermost(
    tokens: Tokens, steps: Tokens, depths: Tokens
) -> tuple[Int[Array, "rows beams 1"], Bool[Array, "rows beams 1"]]:
    """The innermost open bracket of each hypothesis, and whether nothing follows it yet."""
    places = jnp.where(tokens == PAD, -1, np.arange(tokens.shape[2])[None, None])
    # It is the last one that opened at the present depth.
    opened_here = (steps == 1) & (depths == depths[:, :, -1:])
    innermost = jnp.where(opened_here, places, -1).max(axis=2, keepdims=True)
    is_empty = innermost == places.max(axis=2, keepdims=True)
    return jnp.take_along_axis(tokens, jnp.maximum(innermost, 0), axis=2), is_empty
