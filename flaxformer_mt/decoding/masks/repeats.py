"""No sequence of n tokens occurs twice in an output."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.masks.base import Generated, Index, MaskArrays, Tokens, TypeFlags
from flaxformer_mt.decoding.source import Source, Types


@dataclasses.dataclass(frozen=True)
class NoRepeats:
    """Bans the types that would complete an n-gram for the second time; the end mark never."""

    no_repeat_ngram: int  # tokens of an n-gram

    def arrays(self, sources: Sequence[Source], types: Types, shape: tuple[int, int]) -> MaskArrays:
        """None are needed: all is in the tokens."""
        return MaskArrays()

    def banned(self, arrays: MaskArrays, generated: Generated) -> TypeFlags | None:
        """As `Mask.banned`."""
        if self.no_repeat_ngram >= generated.tokens.shape[2]:  # a longer n-gram cannot occur twice
            return None
        again = repeats(
            generated.tokens, generated.position, self.no_repeat_ngram, vocab=generated.vocab
        )
        return again.at[:, :, EOS].set(False)


def repeats(tokens: Tokens, position: Index, n: int, *, vocab: int) -> TypeFlags:
    """The types that, as token number `position`, would end an n-gram for the second time."""
    rows, beams, length = tokens.shape
    starts = jnp.arange(length)
    # An n-gram that began at `start` ended before now; the last n - 1 tokens are its beginning.
    equal = jnp.broadcast_to((starts + n - 1 < position)[None, None], tokens.shape)

    def compare(offset: Array, equal: Array) -> Array:
        earlier = jnp.roll(tokens, -offset, axis=2)
        last = jnp.take(tokens, jnp.maximum(position - (n - 1) + offset, 0), axis=2)
        return equal & (earlier == last[:, :, None])

    # A loop, so that the program is as small for a large n.
    equal = jax.lax.fori_loop(0, n - 1, compare, equal)
    ended_with = jnp.roll(tokens, -(n - 1), axis=2)
    ended_with = jnp.where(equal, ended_with, vocab)  # out of range: dropped

    row = jnp.arange(rows)[:, None, None]
    beam = jnp.arange(beams)[None, :, None]
    banned = jnp.zeros((rows, beams, vocab), bool)
    return banned.at[row, beam, ended_with].set(True, mode="drop")
