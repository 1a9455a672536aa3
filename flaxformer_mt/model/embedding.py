"""Token embeddings, tied or not, and position encodings (paper, sections 3.4 and 3.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.dropout import Dropout
from flaxformer_mt.model.initializers import declare, embedding_normal

# Which table stands for which use, by `config.tie`.
SOURCE_TABLE = {"all": "shared", "target": "source", "none": "source"}
TARGET_TABLE = {"all": "shared", "target": "target", "none": "target"}
SOFTMAX_TABLE = {"all": "shared", "target": "target", "none": "softmax"}


def softmax_table(
    params: Mapping[str, Any], config: ModelConfig
) -> Float[Array, "tgt_vocab d_model"]:
    """The matrix that makes the logits, of the tree under "params" (without that key, unboxed)."""
    return params["embedding"][SOFTMAX_TABLE[config.tie]]


def table_rows(config: ModelConfig, types: int) -> int:
    """Rows of the table of a vocabulary of so many types: the last ones may stand for none.

    Training only ever lowers their probability; decoding leaves them out.
    """
    return -(-types // config.vocab_multiple) * config.vocab_multiple


def sinusoids(length: int, d_model: int) -> Float[np.ndarray, "length d_model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same); float32.

    Computed by NumPy in float64 while tracing, so every backend gets the same numbers.
    """
    even = np.arange(0, d_model, 2)
    angles = np.arange(length)[:, None] / 10000 ** (even / d_model)
    table = np.empty((length, d_model), np.float32)
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table


class Embedding(nn.Module):
    """Both sides' inputs: table[token] * sqrt(d_model) + position encoding, then dropout.

    Raises ValueError where `tie` is "all" and the vocabularies' sizes differ.
    """

    config: ModelConfig
    src_vocab_size: int
    tgt_vocab_size: int

    def setup(self) -> None:
        config = self.config
        if config.tie == "all" and self.src_vocab_size != self.tgt_vocab_size:
            raise ValueError(
                f"model.tie = 'all' needs one shared vocabulary, but the source has "
                f"{self.src_vocab_size} types and the target {self.tgt_vocab_size}: share the "
                f"vocabulary, or set model.tie to 'target' or 'none'"
            )
        sizes = {
            SOURCE_TABLE[config.tie]: self.src_vocab_size,
            TARGET_TABLE[config.tie]: self.tgt_vocab_size,
            SOFTMAX_TABLE[config.tie]: self.tgt_vocab_size,
        }
        self.tables = {
            name: self._table(name, "vocab", table_rows(config, size))
            for name, size in sizes.items()
        }
        if config.positions == "learned":
            self.position_tables = {
                side: self._table(f"{side}_positions", None, config.max_length)
                for side in ("src", "tgt")
            }
        self.dropout = Dropout(config.dropout)

    def _table(self, name: str, first_axis: str | None, size: int) -> Array:
        d_model = self.config.d_model
        return declare(
            self, name, embedding_normal(d_model), (first_axis, "embed"), (size, d_model)
        )

    def source(
        self,
        tokens: Int[Array, "rows length"],
        positions: Int[Array, "rows length"],
        *,
        deterministic: bool,
    ) -> Float[Array, "rows length d_model"]:
        """The encoder's input."""
        table = self.tables[SOURCE_TABLE[self.config.tie]]
        encoding = self._positions("src", tokens.shape[1])
        return self._sum(tokens, table, positions, encoding, deterministic=deterministic)

    def target(
        self,
        tokens: Int[Array, "rows length"],
        positions: Int[Array, "rows length"],
        *,
        length: int,
        deterministic: bool,
    ) -> Float[Array, "rows length d_model"]:
        """The decoder's input; every position is below `length`."""
        table = self.tables[TARGET_TABLE[self.config.tie]]
        encoding = self._positions("tgt", length)
        return self._sum(tokens, table, positions, encoding, deterministic=deterministic)

    def softmax(self) -> Float[Array, "tgt_vocab d_model"]:
        """The matrix that makes the logits."""
        return self.tables[SOFTMAX_TABLE[self.config.tie]]

    def _positions(self, side: str, length: int) -> Float[Array, "positions d_model"]:
        if self.config.positions == "sinusoidal":
            return jnp.asarray(sinusoids(length, self.config.d_model))
        if length > self.config.max_length:
            raise ValueError(
                f"a {side} sequence of {length} positions does not fit the learned position table: "
                f"model.max_length is {self.config.max_length}"
            )
        return self.position_tables[side]

    def _sum(
        self,
        tokens: Int[Array, "rows length"],
        table: Float[Array, "vocab d_model"],
        positions: Int[Array, "rows length"],
        encoding: Float[Array, "positions d_model"],
        *,
        deterministic: bool,
    ) -> Float[Array, "rows length d_model"]:
        # With d_model split over the mesh, the lookup would be partitioned by replicating
        # everything; gathering the table's columns first is the cheap way.
        table = nn.with_logical_constraint(table, ("vocab", None))
        # An index outside its table reads NaN, which shows at once.
        embedded = jnp.take(table, tokens, axis=0, mode="fill") * math.sqrt(self.config.d_model)
        x = embedded + jnp.take(encoding, positions, axis=0, mode="fill")
        x = nn.with_logical_constraint(x, ("batch", "length", "act_embed"))
        return self.dropout(x, deterministic=deterministic)
