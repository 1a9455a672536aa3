"""Token embeddings, tied or not, and position encodings (paper, sections 3.4 and 3.5)."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.attention import Hidden
from flaxformer_mt.model.dropout import Dropout, DropoutKey
from flaxformer_mt.model.kernels import declare, embedding_normal

# Each use's table, by `config.tie`.
SOURCE_TABLE = {"all": "shared", "target": "source", "none": "source"}
TARGET_TABLE = {"all": "shared", "target": "target", "none": "target"}
SOFTMAX_TABLE = {"all": "shared", "target": "target", "none": "softmax"}
SOFTMAX_BIAS = "softmax_bias"
CHUNK = 128  # types that a TPU's vector registers have side by side


def softmax_table(
    params: Mapping[str, Any], config: ModelConfig
) -> Float[Array, "tgt_vocab d_model"]:
    """The matrix that makes the logits, from the unboxed tree under "params"."""
    return params["embedding"][SOFTMAX_TABLE[config.tie]]


def softmax_bias(
    params: Mapping[str, Any], config: ModelConfig
) -> Float[Array, " tgt_vocab"] | None:
    """A bias on `softmax_table`'s logits, if the model has it."""
    return params["embedding"][SOFTMAX_BIAS] if config.logits_bias else None


def table_rows(config: ModelConfig, types: int) -> int:
    """Rows of a table for this many types. The last ones may be padding, which has no probability
    in the loss or in decoding."""
    return -(-types // config.vocab_multiple) * config.vocab_multiple


@functools.partial(jax.jit, static_argnames="config")
def of_types(
    params: Mapping[str, Any], config: ModelConfig, types: Int[Array, " some"]
) -> dict[str, Any]:
    """Parameters for `Transformer.of_types`: the target's tables have these types' rows only, and
    the source's is no longer shared."""
    tables = params["embedding"]
    padding = table_rows(config, types.size) - types.size

    def rows_of_types(name: str) -> Array:
        rows = _take(tables[name], types)
        return jnp.pad(rows, [(0, padding)] + [(0, 0)] * (rows.ndim - 1))

    short = {name: table for name, table in tables.items() if name.endswith("_positions")}
    short["source"] = tables[SOURCE_TABLE[config.tie]]
    short["target"] = rows_of_types(TARGET_TABLE[config.tie])
    if config.tie == "none":
        short["softmax"] = rows_of_types("softmax")
    if config.logits_bias:
        short[SOFTMAX_BIAS] = rows_of_types(SOFTMAX_BIAS)
    return {**params, "embedding": short}


def with_rows(
    params: Mapping[str, Any], config: ModelConfig, before: tuple[int, int], after: tuple[int, int]
) -> dict[str, Any]:
    """Parameters of a model with more source and target types, from those of `before`, whose rows
    stay as they are; tables become host arrays.

    A new type's row is the mean of the others': no new type is likelier than these were on average,
    and what the softmax gives them hardly changes (Hewitt, 2021).
    """
    (src_before, tgt_before), (src_after, tgt_after) = before, after
    sizes = {SOURCE_TABLE[config.tie]: (src_before, src_after)}
    for name in (TARGET_TABLE[config.tie], SOFTMAX_TABLE[config.tie], SOFTMAX_BIAS):
        sizes[name] = (tgt_before, tgt_after)

    tables = dict(params["embedding"])
    for name in sizes.keys() & tables.keys():
        types, types_after = sizes[name]
        rows = np.asarray(tables[name])[:types]
        extended = np.zeros((table_rows(config, types_after), *rows.shape[1:]), rows.dtype)
        extended[:types] = rows
        extended[types:types_after] = rows.mean(axis=0, dtype=np.float64)
        tables[name] = extended
    return {**params, "embedding": tables}


def used_tables(config: ModelConfig) -> frozenset[str]:
    """Names of the vocabulary tables under "embedding"."""
    uses = SOURCE_TABLE, TARGET_TABLE, SOFTMAX_TABLE
    return frozenset(tables[config.tie] for tables in uses)


def table_copies(
    params: Mapping[str, Any],
    config: ModelConfig,
    copies: Callable[[str, Float[Array, "vocab d_model"]], Float[Array, "copies vocab d_model"]],
) -> dict[str, dict[str, Float[Array, "copies vocab d_model"]]]:
    """The collection "copies": of each vocabulary table, by its name, one for each part of the
    rows."""
    tables = params["embedding"]
    names = sorted(used_tables(config))
    return {"embedding": {name: copies(name, tables[name]) for name in names}}


def sinusoids(length: int, d_model: int) -> Float[np.ndarray, "length d_model"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same); float32.

    NumPy computes them in float64 while tracing, so every backend gets the same numbers.
    """
    even = np.arange(0, d_model, 2)
    angles = np.arange(length)[:, None] / 10000 ** (even / d_model)
    table = np.empty((length, d_model), np.float32)
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table


def tensor2tensor_sinusoids(length: int, d_model: int) -> Float[np.ndarray, "length d_model"]:
    """As `sinusoids`, but with wavelengths from 2 pi to exactly 10000 * 2 pi: the exponent of
    channel i is i / (d_model / 2 - 1), not 2i / d_model. float32.

    tensor2tensor, the paper's code, computes them so (`get_timing_signal_1d`), and so does Marian.
    """
    pairs = np.arange(d_model // 2)
    angles = np.arange(length)[:, None] / 10000 ** (pairs / max(d_model // 2 - 1, 1))
    table = np.empty((length, d_model), np.float32)
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)
    return table


def fixed_positions(config: ModelConfig, length: int) -> Float[np.ndarray, "length d_model"]:
    """The position encoding of a model whose positions aren't learned."""
    if config.positions == "tensor2tensor":
        return tensor2tensor_sinusoids(length, config.d_model)
    return sinusoids(length, config.d_model)


def position_factor(config: ModelConfig) -> float:
    """A learned position table's factor before it is added to the tokens.

    Both tables are drawn from N(0, 1/d_model). With the tokens' factor, positions begin as large as
    sinusoids are; without, at d_model 512, sixteen times smaller.
    """
    return math.sqrt(config.d_model) if config.position_scale == "sqrt_d_model" else 1.0


# An index outside its table reads NaN, which is noticed at once.
_take = functools.partial(jnp.take, axis=0, mode="fill")


# Gradients of tokens are summed in float32, also for a table in fewer bits.
@jax.custom_vjp
def _rows(
    table: Float[Array, "vocab d_model"], tokens: Int[Array, "*rows length"]
) -> Float[Array, "*rows length d_model"]:
    return _take(table, tokens).astype(jnp.float32)


def _rows_forward(table: Array, tokens: Array) -> tuple[Array, tuple[Array, Array]]:
    return _rows(table, tokens), (table, tokens)


def _rows_backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, None]:
    table, tokens = residuals
    form = jax.ShapeDtypeStruct(table.shape, jnp.float32)
    (summed,) = jax.linear_transpose(lambda table: _take(table, tokens), form)(gradient)
    return summed.astype(table.dtype), None


_rows.defvjp(_rows_forward, _rows_backward)


class Embedding(nn.Module):
    """Both sides' inputs: table[token] * sqrt(d_model) + position encoding, then dropout.

    A learned position encoding is its table times `position_factor`.

    Lookups use the collection "copies" of `table_copies` if given. Raises ValueError if `tie` is
    "all" and the vocabularies' sizes differ.
    """

    config: ModelConfig
    src_vocab_size: int
    tgt_vocab_size: int

    def setup(self) -> None:
        config = self.config
        if config.tie == "all" and self.src_vocab_size != self.tgt_vocab_size:
            raise ValueError(
                f"model.tie = 'all' can't have {self.src_vocab_size} and {self.tgt_vocab_size} "
                "types: set 'target' or 'none'"
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
        self.softmax_bias: Array | None = None
        """Added to the logits, [tgt_vocab]."""
        if config.logits_bias:
            shape = (table_rows(config, self.tgt_vocab_size),)
            zeros = nn.initializers.zeros
            self.softmax_bias = declare(self, SOFTMAX_BIAS, zeros, ("vocab",), shape)
        self.src_dropout = Dropout(config.dropout)
        self.tgt_dropout = Dropout(config.dropout)

    def _table(self, name: str, first_axis: str | None, size: int) -> Array:
        d_model = self.config.d_model
        init = embedding_normal(d_model)
        return declare(self, name, init, (first_axis, "embed"), (size, d_model))

    def source(
        self,
        tokens: Int[Array, "rows length"],
        positions: Int[Array, "rows length"],
        *,
        dropout_key: DropoutKey,
    ) -> Hidden:
        embedded = self._lookup(SOURCE_TABLE[self.config.tie], tokens)
        x = self._sum(embedded, positions, self._positions("src", tokens.shape[1]))
        x = self.src_dropout(x, dropout_key=dropout_key)
        return x.astype(self.config.stream_dtype)

    def target(
        self,
        tokens: Int[Array, "rows length"],
        positions: Int[Array, "#rows #length"],
        *,
        length: int,
        dropout_key: DropoutKey,
    ) -> Hidden:
        """The decoder's input; every position is below `length`."""
        embedded = self._lookup(TARGET_TABLE[self.config.tie], tokens)
        x = self._sum(embedded, positions, self._positions("tgt", length))
        x = self.tgt_dropout(x, dropout_key=dropout_key)
        return x.astype(self.config.stream_dtype)

    def softmax(self) -> Float[Array, "tgt_vocab d_model"]:
        return self.tables[SOFTMAX_TABLE[self.config.tie]]

    def _positions(self, side: str, length: Any) -> Float[Array, "positions d_model"]:
        if not isinstance(length, int):
            # An exported program leaves it open (jax.export): a table for the longest.
            length = self.config.max_length
        if self.config.positions != "learned":
            return jnp.asarray(fixed_positions(self.config, length))
        if length > self.config.max_length:
            raise ValueError(
                f"{length} {side} positions exceed the learned table: model.max_length = "
                f"{self.config.max_length}"
            )
        table = self.position_tables[side].astype(jnp.float32)
        return table * position_factor(self.config)

    def _lookup(self, name: str, tokens: Int[Array, "rows length"]) -> Hidden:
        if self.has_variable("copies", name):
            copies: Array = self.get_variable("copies", name)
            rows, length = tokens.shape
            parts = tokens.reshape(len(copies), -1, length)  # [copies, rows / copies, length]
            embedded = jax.vmap(_rows)(copies, parts)  # [copies, rows / copies, length, d_model]
            return embedded.reshape(rows, length, -1)
        # With d_model split over the mesh, the partitioner would replicate everything for the
        # lookup; gathering the table's columns first is cheap.
        return _rows(nn.with_logical_constraint(self.tables[name], ("vocab", None)), tokens)

    def _sum(
        self,
        embedded: Hidden,
        positions: Int[Array, "#rows #length"],
        encoding: Float[Array, "positions d_model"],
    ) -> Hidden:
        x = embedded * math.sqrt(self.config.d_model)
        x = x + jnp.take(encoding, positions, axis=0, mode="fill")
        return nn.with_logical_constraint(x, ("batch", "length", "act_embed"))
