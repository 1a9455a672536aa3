"""A source's symbols, such as placeholders, stand in its outputs as often as in the source."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set

import jax.numpy as jnp
import numpy as np

from flaxformer_mt.data.vocabulary import EOS, Vocabularies, VocabularyError
from flaxformer_mt.decoding.errors import DecodingError
from flaxformer_mt.decoding.masks.base import Generated, MaskArrays, TypeFlags
from flaxformer_mt.decoding.source import Source, Types


def copied_types(
    vocabularies: Vocabularies, symbols: Sequence[str], tags: Set[str]
) -> dict[int, int]:
    """The target type of each symbol that outputs copy, by the source's; as
    `Vocabularies.copies_of`. Raises DecodingError."""
    try:
        copies = vocabularies.copies_of(symbols, tags=tags)
    except VocabularyError as error:
        raise DecodingError(f"decoding.copy_symbols: {error}") from error
    if not copies:
        raise DecodingError(
            "decoding.copy_symbols: the vocabularies have no symbols: name them in "
            "data.vocabulary.symbols of a new run"
        )
    return copies


@dataclasses.dataclass(frozen=True)
class CopiedSymbols:
    """Bans a symbol that an output has as often as its source, and the end mark until it has them
    all. Once there is room for no more than the missing ones, it bans all else.

    Where they stand is up to the model.
    """

    symbols: tuple[int, ...]  # target types

    def arrays(self, sources: Sequence[Source], types: Types, shape: tuple[int, int]) -> MaskArrays:
        """By row and symbol its id in the search, which is past all `types` if it isn't among them,
        and how often outputs have it."""
        symbols = np.array(self.symbols)
        ids = np.searchsorted(types, symbols)
        is_known = np.isin(symbols, types)
        entries = np.zeros((shape[0], len(symbols), 2), np.int32)
        entries[:, :, 0] = np.where(is_known, ids, len(types))
        for row, source in enumerate(sources):
            copied = np.array(source.copied, np.int64)
            entries[row, :, 1] = (copied[:, None] == symbols).sum(axis=0)
        return MaskArrays(rows=entries)

    def banned(self, arrays: MaskArrays, generated: Generated) -> TypeFlags:
        """As `Mask.banned`."""
        tokens = generated.tokens  # [rows, beams, length]
        rows, beams, length = tokens.shape
        ids, wanted = arrays.rows[:, None, :, 0], arrays.rows[:, None, :, 1]
        is_past = jnp.arange(length)[None, None, :, None] < generated.position
        is_symbol = (tokens[..., None] == ids[:, :, None]) & is_past
        missing = wanted - is_symbol.sum(axis=2)  # --> [rows, beams, symbols]

        left = jnp.maximum(missing, 0).sum(axis=2)  # --> [rows, beams]
        room = (generated.limits - generated.position - 1)[:, None]  # before the end mark
        banned = jnp.broadcast_to(
            ((left > 0) & (left >= room))[..., None], (rows, beams, generated.vocab)
        )
        banned = banned.at[:, :, EOS].set(left > 0)
        row, beam = jnp.arange(rows)[:, None, None], jnp.arange(beams)[None, :, None]
        ids = jnp.broadcast_to(ids, missing.shape)
        return banned.at[row, beam, ids].set(missing <= 0, mode="drop")
