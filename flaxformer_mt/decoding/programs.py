"""The compiled parts of decoding a batch: its beginning, steps of search, and changes of its shape.

A search runs until its cache is full or few of its sentences are left. Between such stretches the
cache grows, so that early steps do not read the room of late ones, and finished sentences leave.
"""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int

from flaxformer_mt.decoding import search
from flaxformer_mt.decoding.rules import Rules
from flaxformer_mt.decoding.search import Sentences, State, Step, Weights
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.cache import grown

Params = tuple[Any, ...]  # a tree under "params" for each of the models
Models = tuple[Transformer, ...]  # several: an ensemble


@functools.partial(jax.jit, static_argnames=("models", "rules", "length", "room"))
def begin(
    params: Params,
    src: Int[Array, "rows src_length"],
    src_lengths: Int[Array, " rows"],
    sentences: Sentences,
    *,
    models: Models,
    rules: Rules,
    length: int,
    room: int,
) -> State:
    """The sources encoded, and their searches before the first step."""
    positions = jnp.broadcast_to(jnp.arange(src.shape[1]), src.shape)
    segment_ids = (positions < src_lengths[:, None]).astype(jnp.int32)
    caches = []
    for model, own in zip(models, params, strict=True):
        encoded = model.apply(
            {"params": own},
            src,
            src_segment_ids=segment_ids,
            src_positions=positions * segment_ids,
            deterministic=True,
            method=Transformer.encode,
        )
        caches.append(
            model.apply(
                {"params": own},
                encoded,
                segment_ids,
                beams=rules.beam_size,
                length=room,
                coverage=rules.coverage,
                method=Transformer.start_cache,
            )
        )
    return _by_rows(search.begin(_joined(caches), sentences, rules, length=length))


@functools.partial(
    jax.jit, static_argnames=("models", "rules", "parts"), donate_argnames=("state",)
)
def advance(
    params: Params,
    state: State,
    weights: Weights,
    leave_at: Int[Array, ""],
    *,
    models: Models,
    rules: Rules,
    parts: int,
) -> State:
    """Steps until the cache is full or no more than `leave_at` rows are left in any part."""
    room: int = state.cache["beams"][0]["ancestry"].shape[2]
    return search.advance(
        step_of(models, params),
        state,
        weights,
        rules,
        until=room,
        parts=parts,
        leave_at=leave_at,
    )


@functools.partial(jax.jit, static_argnames=("parts", "room"))
def reshaped(state: State, rows: Int[Array, "parts kept"], *, parts: int, room: int) -> State:
    """`state` with these rows of each part alone, and with room for so many positions."""

    def kept(leaf: Array) -> Array:
        if leaf.ndim == 0:
            return leaf
        # Part by part: where the parts are devices, no row goes from one to another.
        split = leaf.reshape(parts, leaf.shape[0] // parts, *leaf.shape[1:])
        return search.take(split, rows).reshape(rows.size, *leaf.shape[1:])

    if rows.size != state.stopped.size:
        state = jax.tree.map(kept, state)
    caches = [grown(cache, room) for cache in _apart(state.cache)]
    return _by_rows(state._replace(cache=_joined(caches)))


def step_of(models: Models, params: Params) -> Step:
    """One step of all models: the logarithm of their mean probability, or the logits of one."""

    def step(tokens: Array, index: Array, cache: Any) -> tuple[Array, Any]:
        caches, logits = [], []
        for model, own, its in zip(models, params, _apart(cache), strict=True):
            out, its = model.apply({"params": own}, tokens, index, its, method="decode_step")
            logits.append(out)
            caches.append(its)
        if len(models) == 1:
            return logits[0], _joined(caches)
        # Without the rows that pad a table, of which the members may have different numbers.
        each = jnp.stack(
            [
                jax.nn.log_softmax(out[..., : model.tgt_vocab_size], axis=-1)
                for model, out in zip(models, logits, strict=True)
            ]
        )
        return jax.nn.logsumexp(each, axis=0) - np.log(len(models)), _joined(caches)

    return step


def _joined(caches: Any) -> Any:
    """One cache for the search, which reorders what is under "beams"."""
    return {
        "beams": tuple(cache["beams"] for cache in caches),
        "models": tuple({k: v for k, v in cache.items() if k != "beams"} for cache in caches),
    }


def _apart(cache: Any) -> list[Any]:
    return [
        {**rest, "beams": beams}
        for rest, beams in zip(cache["models"], cache["beams"], strict=True)
    ]


def _by_rows(state: State) -> State:
    """Each device has its rows of everything: what depends on no input would lie on all, whole."""

    def split(leaf: Array) -> Array:
        return nn.with_logical_constraint(leaf, ("batch", *[None] * (leaf.ndim - 1)))

    return jax.tree.map(lambda leaf: split(leaf) if leaf.ndim else leaf, state)


def parts_of(mesh: Mesh) -> int:
    """Into how many parts, one a device, the rows of a batch are split."""
    return int(mesh.shape["data"] * mesh.shape["fsdp"])
