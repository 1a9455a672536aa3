"""Forced decoding: how likely the model finds translations that it is given."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.attention_weights import cross_weights
from flaxformer_mt.decoding.decode import DecodingError
from flaxformer_mt.decoding.search import coverage_penalty, length_penalty
from flaxformer_mt.decoding.segments import Part
from flaxformer_mt.decoding.teacher_forcing import PairBatch, decoder_states, over_batches
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.stacks import aligning_layer
from flaxformer_mt.parallel import place_batch

LOGITS = 1 << 24  # logits that a device holds at a time: 64 MiB in float32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scored:
    """What the model makes of a given translation.

    `tokens` and `token_log_probs` go together and hold end marks: one at the end, and one more
    after each other part of a line that was scored in parts. Natural logarithms.
    """

    log_prob: float  # the sum of token_log_probs
    score: float  # log_prob / length penalty + coverage penalty
    tokens: tuple[int, ...]
    token_log_probs: tuple[float, ...]


NOTHING = Scored(log_prob=0.0, score=0.0, tokens=(), token_log_probs=())


def score_parts(
    params: Mapping[str, Any],
    model: Transformer,
    lines: Sequence[Sequence[Part]],
    *,
    length_penalty: float,
    average: bool = False,
    coverage: float = 0.0,
    batch_tokens: int,
    mesh: Mesh,
) -> list[Scored]:
    """Each line's scores, in order: of its parts one after another. A line without parts has 0.

    `length_penalty`, `average` and `coverage` are the settings that search has for its scores.

    `params` are on all devices of `mesh`, which share the rows of a batch. In float32 a score does
    not depend on the other lines, and is the one that search has for the same tokens.

    Raises DecodingError where scores are not numbers.
    """
    parts = list(itertools.chain.from_iterable(lines))
    if not parts:
        return [NOTHING for _ in lines]
    found = iter(_log_probs(params, model, parts, batch_tokens=batch_tokens, mesh=mesh))
    added: Iterator[float] = itertools.repeat(0.0)
    if coverage:
        layer = aligning_layer(model.config)
        attended = cross_weights(
            params, model, parts, layer=layer, batch_tokens=batch_tokens, mesh=mesh
        )
        added = iter([coverage * float(coverage_penalty(own.sum(axis=0))) for own in attended])
    return [
        _scored(
            line,
            [next(found) for _ in line],
            length_penalty,
            average,
            sum(next(added) for _ in line),
        )
        if line
        else NOTHING
        for line in lines
    ]


def _scored(
    parts: Sequence[Part],
    log_probs: Sequence[Float[np.ndarray, " tokens"]],
    alpha: float,
    average: bool,
    added: float,
) -> Scored:
    tokens = tuple(itertools.chain.from_iterable((*part.tgt, EOS) for part in parts))
    each = tuple(itertools.chain.from_iterable(values.tolist() for values in log_probs))
    total = math.fsum(each)
    if not math.isfinite(total):
        raise DecodingError(
            "the model's scores are not numbers: its parameters are damaged or its training "
            "diverged; use another checkpoint"
        )
    return Scored(
        log_prob=total,
        score=total / float(length_penalty(len(tokens), alpha, average=average)) + added,
        tokens=tokens,
        token_log_probs=each,
    )


def _log_probs(
    params: Mapping[str, Any],
    model: Transformer,
    parts: Sequence[Part],
    *,
    batch_tokens: int,
    mesh: Mesh,
) -> list[Float[np.ndarray, " tokens"]]:
    """The log-probability of each part's tokens and end mark."""
    split = mesh.shape["data"] * mesh.shape["fsdp"]

    def compute(batch: PairBatch) -> Array:
        rows, length = batch.src.shape
        width = min(length, max(1, LOGITS * split // (rows * model.tgt_vocab_size)))
        arrays = (batch.src, batch.tgt_in, batch.tgt_out, batch.src_lengths, batch.tgt_lengths)
        values: Array = _forced(params, *place_batch(arrays, mesh), model=model, width=width)
        return values

    max_length = model.config.max_length
    return over_batches(parts, compute, batch_tokens=batch_tokens, max_length=max_length, mesh=mesh)


@functools.partial(jax.jit, static_argnames=("model", "width"))
def _forced(
    params: Mapping[str, Any],
    src: Int[Array, "rows length"],
    tgt_in: Int[Array, "rows length"],
    tgt_out: Int[Array, "rows length"],
    src_lengths: Int[Array, " rows"],
    tgt_lengths: Int[Array, " rows"],
    *,
    model: Transformer,
    width: int,
) -> Float[Array, "rows length"]:
    """Log-probabilities of `tgt_out`; only `width` positions of each row have logits at a time."""
    hidden, _ = decoder_states(model, params, src, tgt_in, src_lengths, tgt_lengths)
    rows, length, d_model = hidden.shape
    count = -(-length // width)

    def of_slice(
        cut: tuple[Float[Array, "rows width d_model"], Int[Array, "rows width"]],
    ) -> Float[Array, "rows width"]:
        states, labels = cut
        # The model's own: what it says of the softmax matrix has one place.
        logits: Any = model.apply({"params": params}, states, method=Transformer.logits)
        chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        return chosen - jax.nn.logsumexp(logits, axis=-1)

    if count == 1:
        return of_slice((hidden, tgt_out))
    # Cut along the length, not over flattened positions: rows are split over devices.
    padding = count * width - length
    hidden = jnp.pad(hidden, ((0, 0), (0, padding), (0, 0)))
    labels = jnp.pad(tgt_out, ((0, 0), (0, padding)))
    slices = (
        jnp.moveaxis(hidden.reshape(rows, count, width, d_model), 1, 0),
        jnp.moveaxis(labels.reshape(rows, count, width), 1, 0),
    )
    values = jax.lax.map(of_slice, slices)
    return jnp.moveaxis(values, 0, 1).reshape(rows, count * width)[:, :length]
