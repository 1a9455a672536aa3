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

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.attention_weights import cross_weights
from flaxformer_mt.decoding.decode import NO_NUMBERS, DecodingError
from flaxformer_mt.decoding.search import coverage_penalty, length_penalty
from flaxformer_mt.decoding.segments import Part
from flaxformer_mt.decoding.teacher_forcing import Pairs, decoder_states, over_batches
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.stacks import aligning_layer

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
    config: DecodingConfig,
    *,
    mesh: Mesh,
) -> list[Scored]:
    """Each line's scores, in order: of its parts one after another. A line without parts has 0.

    `params` are on all devices of `mesh`, which share the rows of a batch. In float32 a score does
    not depend on the other lines, and is the one that search has for the same tokens.

    Raises DecodingError where scores are not numbers.
    """
    parts = list(itertools.chain.from_iterable(lines))
    if not parts:
        return [NOTHING for _ in lines]
    found = iter(_log_probs(params, model, parts, batch_tokens=config.batch_tokens, mesh=mesh))
    added: Iterator[float] = itertools.repeat(0.0)
    if beta := config.coverage_penalty:
        attended = cross_weights(
            params,
            model,
            parts,
            layer=aligning_layer(model.config),
            batch_tokens=config.batch_tokens,
            mesh=mesh,
        )
        added = iter([beta * float(coverage_penalty(own.sum(axis=0))) for own in attended])
    return [
        _scored(line, [next(found) for _ in line], config, sum(next(added) for _ in line))
        if line
        else NOTHING
        for line in lines
    ]


def _scored(
    parts: Sequence[Part],
    log_probs: Sequence[Float[np.ndarray, " tokens"]],
    config: DecodingConfig,
    added: float,
) -> Scored:
    tokens = tuple(itertools.chain.from_iterable((*part.tgt, EOS) for part in parts))
    each = tuple(itertools.chain.from_iterable(values.tolist() for values in log_probs))
    total = math.fsum(each)
    if not math.isfinite(total):
        raise DecodingError(f"the model's scores are {NO_NUMBERS}")
    average = config.length_norm == "average"
    penalty = float(length_penalty(len(tokens), config.length_penalty, average=average))
    return Scored(
        log_prob=total,
        score=total / penalty + added,
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

    def compute(pairs: Pairs) -> Array:
        rows, length = pairs.src.shape
        width = min(length, max(1, LOGITS * split // (rows * model.tgt_vocab_size)))
        values: Array = _forced(params, pairs, model=model, width=width)
        return values

    max_length = model.config.max_length
    return over_batches(parts, compute, batch_tokens=batch_tokens, max_length=max_length, mesh=mesh)


@functools.partial(jax.jit, static_argnames=("model", "width"))
def _forced(
    params: Mapping[str, Any],
    pairs: Pairs,
    *,
    model: Transformer,
    width: int,
) -> Float[Array, "rows length"]:
    """Log-probabilities of `tgt_out`; only `width` positions of each row have logits at a time."""
    hidden, _ = decoder_states(model, params, pairs)
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
        return of_slice((hidden, pairs.tgt_out))
    # Cut along the length, not over flattened positions: rows are split over devices.
    padding = count * width - length
    hidden = jnp.pad(hidden, ((0, 0), (0, padding), (0, 0)))
    labels = jnp.pad(pairs.tgt_out, ((0, 0), (0, padding)))
    slices = (
        jnp.moveaxis(hidden.reshape(rows, count, width, d_model), 1, 0),
        jnp.moveaxis(labels.reshape(rows, count, width), 1, 0),
    )
    values = jax.lax.map(of_slice, slices)
    return jnp.moveaxis(values, 0, 1).reshape(rows, count * width)[:, :length]
