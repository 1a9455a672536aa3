"""What a model attends to when it reads a sentence and says its translation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Float32

from flaxformer_mt.config import ModelConfig
from flaxformer_mt.data.vocabulary import BOS, EOS, Vocabularies
from flaxformer_mt.decoding.decode import NO_NUMBERS, DecodingError
from flaxformer_mt.decoding.segments import Part
from flaxformer_mt.decoding.teacher_forcing import Pairs, batches, decoder_states, over_batches
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.stacks import layer_name
from flaxformer_mt.parallel import on_mesh, place_batch

_AT_ONCE = 1 << 25  # weights of a layer that are held: 128 MiB


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attention:
    """All attention weights of one sentence and its translation; each row sums to 1.

    Row i of `decoder` and `cross` is the query that said `tgt_pieces[i]`. Column j of `encoder`
    and `cross` is `src_pieces[j]`; column j of `decoder` is `tgt_inputs[j]`, what the decoder had
    read: its weights beyond the diagonal are 0.
    """

    src_pieces: tuple[str, ...]  # with the end mark, "</s>"
    tgt_pieces: tuple[str, ...]  # as the decoder says them: with the end mark, "</s>"
    tgt_inputs: tuple[str, ...]  # as it reads them: the begin mark, "<s>", and all but the end mark
    encoder: Float32[np.ndarray, "layers heads src src"]
    decoder: Float32[np.ndarray, "layers heads tgt tgt"]
    cross: Float32[np.ndarray, "layers heads tgt src"]


def attend_part(
    params: Mapping[str, Any],
    model: Transformer,
    vocabularies: Vocabularies,
    part: Part,
    *,
    mesh: Mesh,
) -> Attention:
    """The attention of one part, computed on the first device of `mesh` alone."""
    split = mesh.shape["data"] * mesh.shape["fsdp"]
    (batch,) = batches([part], batch_tokens=1, max_length=model.config.max_length, split=split)
    with on_mesh(mesh):
        weights = _all_weights(params, place_batch(batch.pairs, mesh), model=model)
    encoder, decoder, cross = (np.asarray(stack[:, 0], np.float32) for stack in weights)
    src, tgt = len(part.src) + 1, len(part.tgt) + 1
    found = Attention(
        src_pieces=tuple(vocabularies.src.pieces((*part.src, EOS))),
        tgt_pieces=tuple(vocabularies.tgt.pieces((*part.tgt, EOS))),
        tgt_inputs=tuple(vocabularies.tgt.pieces((BOS, *part.tgt))),
        encoder=encoder[:, :, :src, :src],
        decoder=decoder[:, :, :tgt, :tgt],
        cross=cross[:, :, :tgt, :src],
    )
    if not np.isfinite(found.cross).all():
        raise DecodingError(f"the model's attention is {NO_NUMBERS}")
    return found


def layer_weights(
    sown: Mapping[str, Any], config: ModelConfig, stack: str, kind: str
) -> Float[Array, "layers rows heads queries keys"]:
    """The weights that `decoder_states` sowed in a stack, in order of its layers.

    `stack` is "encoder" or "decoder", `kind` "self_attention" or "cross_attention".
    """
    layers = sown["intermediates"][stack]
    if config.scan_layers:
        return layers["layers"][kind]["weights"][0]
    count = config.encoder_layers if stack == "encoder" else config.decoder_layers
    return jnp.stack([layers[layer_name(i)][kind]["weights"][0] for i in range(count)])


@functools.partial(jax.jit, static_argnames="model")
def _all_weights(
    params: Mapping[str, Any],
    pairs: Pairs,
    *,
    model: Transformer,
) -> tuple[Float[Array, "layers rows heads queries keys"], ...]:
    """Of the encoder, of the decoder over itself, of the decoder over the source."""
    _, sown = decoder_states(model, params, pairs, with_attention=True)
    of = functools.partial(layer_weights, sown, model.config)
    return (
        of("encoder", "self_attention"),
        of("decoder", "self_attention"),
        of("decoder", "cross_attention"),
    )


def cross_weights(
    params: Mapping[str, Any],
    model: Transformer,
    parts: Sequence[Part],
    *,
    layer: int,
    batch_tokens: int,
    mesh: Mesh,
) -> Iterator[np.ndarray]:
    """Each part's weights [tgt, src] over the source in one layer, the mean of its heads.

    They are computed as they are taken, `_AT_ONCE` numbers of them at a time: of thousands of long
    lines all of them would be gigabytes. Raises DecodingError, and ValueError for a layer that
    there is not.
    """
    layers = model.config.decoder_layers
    if not 0 <= layer < layers:
        raise ValueError(f"layer = {layer}: the decoder has layers 0 to {layers - 1}")

    for some in _shares(parts):
        found = over_batches(
            some,
            functools.partial(_mean_weights, params, model=model, layer=layer),
            batch_tokens=batch_tokens,
            max_length=model.config.max_length,
            mesh=mesh,
        )
        for own, part in zip(found, some, strict=True):
            weights = own[:, : len(part.src) + 1]
            if not np.isfinite(weights).all():
                raise DecodingError(f"the model's attention is {NO_NUMBERS}")
            yield weights


def _shares(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The parts in order, as many together as have about `_AT_ONCE` weights."""
    some: list[Part] = []
    count = 0
    for part in parts:
        longest = max(len(part.src), len(part.tgt)) + 1  # both sides of a batch have one length
        if some and count + longest**2 > _AT_ONCE:
            yield some
            some, count = [], 0
        some.append(part)
        count += longest**2
    if some:
        yield some


@functools.partial(jax.jit, static_argnames=("model", "layer"))
def _mean_weights(
    params: Mapping[str, Any],
    pairs: Pairs,
    *,
    model: Transformer,
    layer: int,
) -> Float[Array, "rows queries keys"]:
    _, sown = decoder_states(model, params, pairs, with_attention=True)
    return layer_weights(sown, model.config, "decoder", "cross_attention")[layer].mean(axis=1)
