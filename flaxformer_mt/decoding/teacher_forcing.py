"""Teacher forcing: how likely a model finds given translations, and what it attends to."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Float32, Int

from flaxformer_mt.config import DecodingConfig, ModelConfig
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, Vocabularies
from flaxformer_mt.decoding.errors import DecodingError
from flaxformer_mt.decoding.penalties import coverage_penalty, length_penalty
from flaxformer_mt.decoding.rounding import one_of_few, power_of_two_at_least, power_of_two_at_most
from flaxformer_mt.decoding.run.sizes import (
    SHORTEST,
    USUAL_TOKENS,
    in_batches,
    is_small,
    shards_of,
)
from flaxformer_mt.decoding.text.decoded import NO_NUMBERS
from flaxformer_mt.decoding.text.segments import Part
from flaxformer_mt.model.stacks import aligning_layer, layer_name
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import on_mesh, place_batch

LOGITS = 1 << 24  # logits that a device holds at a time: 64 MiB in float32
# Nats added to a head's entropy: even one that has none counts as much as a few of the others.
_LEAST_ENTROPY = 0.1
_AT_ONCE = 1 << 25  # attention weights of a layer that are held: 128 MiB


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scored:
    """The model's scores for a given translation."""

    log_prob: float = 0.0  # natural logarithm: the sum of token_log_probs
    score: float = 0.0  # log_prob / length penalty + coverage penalty
    tokens: tuple[int, ...] = ()  # an end mark after each part of the line
    token_log_probs: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attention:
    """All attention weights of one sentence and its translation; each row sums to 1.

    Row i of `decoder` and `cross` is the query that said `tgt_pieces[i]`. Column j of `encoder` and
    `cross` is `src_pieces[j]`, of `decoder` it is `tgt_inputs[j]`, with weights 0 beyond the
    diagonal.
    """

    src_pieces: tuple[str, ...]  # with the end mark, "</s>"
    tgt_pieces: tuple[str, ...]  # as the decoder says them: with the end mark, "</s>"
    tgt_inputs: tuple[str, ...]  # as it reads them: the begin mark, "<s>", and all but the end mark
    encoder: Float32[np.ndarray, "layers heads src src"]
    decoder: Float32[np.ndarray, "layers heads tgt tgt"]
    cross: Float32[np.ndarray, "layers heads tgt src"]

    def __repr__(self) -> str:
        layers, heads, tgt, src = self.cross.shape
        return f"<Attention: {layers} layers of {heads} heads, pieces: {tgt} target, {src} source>"

    def _repr_html_(self) -> str:
        from flaxformer_mt.attention.page import framed

        return framed(self)


@dataclasses.dataclass(frozen=True)
class TeacherForcing:
    """A model that is given translations, on all devices of `mesh`, which share the rows of a batch
    of `config.batch_tokens` (0: USUAL_TOKENS). In float32 no result depends on the other lines.
    Raises DecodingError for results that aren't finite."""

    params: Mapping[str, Any]
    model: Transformer
    config: DecodingConfig
    mesh: Mesh

    def score(self, lines: Sequence[Sequence[Part]]) -> list[Scored]:
        """Each line's scores over its parts, 0 without; in float32 the search's for the same
        tokens."""
        parts = list(itertools.chain.from_iterable(lines))
        config = self.config
        log_probs = iter(self.log_probs(parts))
        added: Iterator[float] = itertools.repeat(0.0)
        if beta := config.coverage_penalty:
            attended = self.cross_weights(parts, aligning_layer(self.model.config))
            added = iter(
                [beta * float(coverage_penalty(weights.sum(axis=0))) for weights in attended]
            )
        scored = []
        for line in lines:
            token_log_probs = [log_prob for _ in line for log_prob in next(log_probs).tolist()]
            total = math.fsum(token_log_probs)
            if not math.isfinite(total):
                raise DecodingError(f"the model's scores are {NO_NUMBERS}")
            average = config.length_norm == "average"
            penalty = length_penalty(
                max(len(token_log_probs), 1), config.length_penalty, average=average
            )
            scored.append(
                Scored(
                    log_prob=total,
                    score=total / float(penalty) + sum(next(added) for _ in line),
                    tokens=tuple(token for part in line for token in (*part.tgt, EOS)),
                    token_log_probs=tuple(token_log_probs),
                )
            )
        return scored

    def log_probs(self, parts: Sequence[Part]) -> list[Float[np.ndarray, " tokens"]]:
        """The log-probability of each part's tokens and end mark."""

        def compute(pairs: Pairs) -> Array:
            rows, length = pairs.src.shape
            positions = LOGITS * shards_of(self.mesh) // (rows * self.model.tgt_vocab_size)
            width = min(length, max(1, positions))
            return _log_probs(self.params, pairs, model=self.model, width=width)

        return self._over_batches(parts, compute)

    def cross_weights(self, parts: Sequence[Part], layer: int) -> Iterator[np.ndarray]:
        """Each part's weights [tgt, src] over the source in one layer, averaged over heads. They
        are computed as they are consumed, about `_AT_ONCE` numbers at a time. Raises ValueError for
        an unknown layer."""
        layers = self.model.config.decoder_layers
        if not 0 <= layer < layers:
            raise ValueError(f"layer = {layer}: the decoder has layers 0 to {layers - 1}")
        compute = functools.partial(_mean_weights, self.params, model=self.model, layer=layer)
        return self._weights(parts, compute)

    def aligning_weights(self, parts: Sequence[Part]) -> Iterator[np.ndarray]:
        """As `cross_weights`, of all layers, put together such that row i has what token i is the
        translation of; its last row, of the end mark, has little meaning.

        A row of the upper half of the layers is for the token that the decoder says there, and one
        of the lower half for the token that it reads (Kobayashi et al., 2020; Chen et al., 2020,
        arXiv 2004.14837), which is the one that the row before says. A head counts by how sharp its
        weights are in this sentence.
        """
        compute = functools.partial(_aligning_weights, self.params, model=self.model)
        return self._weights(parts, compute)

    def _weights(
        self, parts: Sequence[Part], compute: Callable[[Pairs], Array]
    ) -> Iterator[np.ndarray]:
        # Both sides of a batch have one length.
        ends = itertools.accumulate((max(len(p.src), len(p.tgt)) + 1) ** 2 for p in parts)
        at_once = itertools.groupby(
            zip(parts, ends, strict=True), lambda part_and_end: part_and_end[1] // _AT_ONCE
        )
        for _, group in at_once:
            members = [part for part, _ in group]
            for padded, part in zip(self._over_batches(members, compute), members, strict=True):
                weights = padded[:, : len(part.src) + 1]
                if not np.isfinite(weights).all():
                    raise DecodingError(f"the model's attention is {NO_NUMBERS}")
                yield weights

    def attention(self, part: Part, vocabularies: Vocabularies) -> Attention:
        """Of one part, on the first device."""
        ((_, pairs),) = self._batches([part])
        with on_mesh(self.mesh):
            pairs = place_batch(pairs, self.mesh)
            weights = _all_weights(self.params, pairs, model=self.model)
        encoder, decoder, cross = (np.asarray(stack[:, 0], np.float32) for stack in weights)
        if not np.isfinite(cross).all():
            raise DecodingError(f"the model's attention is {NO_NUMBERS}")
        src, tgt = len(part.src) + 1, len(part.tgt) + 1
        return Attention(
            src_pieces=tuple(vocabularies.src.pieces((*part.src, EOS))),
            tgt_pieces=tuple(vocabularies.tgt.pieces((*part.tgt, EOS))),
            tgt_inputs=tuple(vocabularies.tgt.pieces((BOS, *part.tgt))),
            encoder=encoder[:, :, :src, :src],
            decoder=decoder[:, :, :tgt, :tgt],
            cross=cross[:, :, :tgt, :src],
        )

    def _over_batches(
        self, parts: Sequence[Part], compute: Callable[[Pairs], Array]
    ) -> list[np.ndarray]:
        """What `compute` gives for each part: from [rows, length, ...], its own target's."""
        by_part: list[Any] = [None] * len(parts)

        def computed() -> Iterator[tuple[Any, Any, Any]]:
            for numbers, pairs in self._batches(parts):
                with on_mesh(self.mesh):
                    values = compute(place_batch(pairs, self.mesh))
                yield numbers, pairs.tgt_lengths, values

        # The next batch is put together while the devices have this one; no more are held.
        end = [(None, None, None)]
        for (numbers, lengths, values), _ in itertools.pairwise(itertools.chain(computed(), end)):
            for number, row, length in zip(numbers, np.asarray(values), lengths, strict=False):
                # A view would keep the whole batch, padding and all.
                by_part[number] = row[:length].copy()
        return by_part

    def _batches(self, parts: Sequence[Part]) -> Iterator[tuple[tuple[int, ...], Pairs]]:
        return batches(
            parts,
            batch_tokens=self.config.batch_tokens or USUAL_TOKENS,
            max_length=self.model.config.max_length,
            shards=shards_of(self.mesh),
            few=is_small((self.params,), self.mesh),
        )


class Pairs(NamedTuple):
    """Sources and translations: the decoder reads `tgt_in` (begin mark, translation) and says
    `tgt_out` (translation, end mark)."""

    src: Int[Any, "rows length"]
    tgt_in: Int[Any, "rows length"]
    tgt_out: Int[Any, "rows length"]
    src_lengths: Int[Any, " rows"]  # tokens with the end mark; 0: padding
    tgt_lengths: Int[Any, " rows"]


def batches(
    parts: Sequence[Part], *, batch_tokens: int, max_length: int, shards: int, few: bool = False
) -> Iterator[tuple[tuple[int, ...], Pairs]]:
    """The numbers of parts that share a batch, longest first, and its host arrays.

    Both sides have one length: a power of two or one and a half of one (or `max_length`); 32, 128
    or 512 if `few`. The rows are `shards` equal shares, each the power of two that fills
    `batch_tokens` = rows * length, or a single row; the last batch has fewer.
    """

    def shape(longest: int) -> tuple[int, int]:
        length = one_of_few(longest, 2 * SHORTEST) if few else batch_length(longest)
        length = min(length, max_length)
        return power_of_two_at_most(max(batch_tokens // length, 1)), length

    lengths = [max(len(part.src), len(part.tgt)) + 1 for part in parts]
    for batch in in_batches(lengths, shape, shards=shards):
        pairs = Pairs(
            *(np.full((batch.rows, batch.length), PAD, np.int32) for _ in range(3)),
            *(np.zeros(batch.rows, np.int32) for _ in range(2)),
        )
        for row, number in enumerate(batch.numbers):
            src, tgt = parts[number].src, parts[number].tgt
            pairs.src_lengths[row], pairs.tgt_lengths[row] = len(src) + 1, len(tgt) + 1
            pairs.src[row, : len(src) + 1] = (*src, EOS)
            pairs.tgt_in[row, : len(tgt) + 1] = (BOS, *tgt)
            pairs.tgt_out[row, : len(tgt) + 1] = (*tgt, EOS)
        yield batch.numbers, pairs


def batch_length(needed: int) -> int:
    power = max(power_of_two_at_least(needed), SHORTEST)
    return power * 3 // 4 if needed <= power * 3 // 4 and power > SHORTEST else power


def _forward(
    params: Mapping[str, Any], model: Transformer, pairs: Pairs, *, with_attention: bool = False
) -> tuple[Float[Array, "rows length d_model"], Mapping[str, Any]]:
    """The decoder's states for every token of `tgt_in`, and what layers sow if `with_attention`."""
    positions = jnp.broadcast_to(jnp.arange(pairs.src.shape[1])[None], pairs.src.shape)
    src_ids = (positions < pairs.src_lengths[:, None]).astype(jnp.int32)
    tgt_ids = (positions < pairs.tgt_lengths[:, None]).astype(jnp.int32)
    return model.apply(
        {"params": params},
        pairs.src,
        pairs.tgt_in,
        src_segment_ids=src_ids,
        tgt_segment_ids=tgt_ids,
        src_positions=positions * src_ids,
        tgt_positions=positions * tgt_ids,
        dropout_key=None,
        mutable=["intermediates"] if with_attention else [],
    )


@functools.partial(jax.jit, static_argnames=("model", "width"))
def _log_probs(
    params: Mapping[str, Any], pairs: Pairs, *, model: Transformer, width: int
) -> Float[Array, "rows length"]:
    """Log-probabilities of `tgt_out`; only `width` positions of each row have logits at a time."""
    hidden, _ = _forward(params, model, pairs)
    rows, length, _ = hidden.shape
    count = -(-length // width)  # of slices of `width` positions

    def of_slice(cut: tuple[Array, Array]) -> Float[Array, "rows width"]:
        states, labels = cut
        # The model's own: what it says of the softmax matrix has one place.
        logits: Any = model.apply({"params": params}, states, method=Transformer.logits)
        chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        return chosen - jax.nn.logsumexp(logits, axis=-1)

    def cut(x: Array) -> Array:
        # Along the length, not over flattened positions: rows are split over devices.
        x = jnp.pad(x, [(0, 0), (0, count * width - length)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(x.reshape(rows, count, width, *x.shape[2:]), 1, 0)

    if count == 1:
        return of_slice((hidden, pairs.tgt_out))
    values = jax.lax.map(of_slice, (cut(hidden), cut(pairs.tgt_out)))
    return jnp.moveaxis(values, 0, 1).reshape(rows, count * width)[:, :length]


@functools.partial(jax.jit, static_argnames=("model", "layer"))
def _mean_weights(
    params: Mapping[str, Any], pairs: Pairs, *, model: Transformer, layer: int
) -> Float[Array, "rows queries keys"]:
    _, sown = _forward(params, model, pairs, with_attention=True)
    return _layer_weights(sown, model.config, "decoder", "cross_attention")[layer].mean(axis=1)


@functools.partial(jax.jit, static_argnames="model")
def _aligning_weights(
    params: Mapping[str, Any], pairs: Pairs, *, model: Transformer
) -> Float[Array, "rows queries keys"]:
    _, sown = _forward(params, model, pairs, with_attention=True)
    weights = _layer_weights(sown, model.config, "decoder", "cross_attention")

    entropies = -jax.scipy.special.xlogy(weights, weights).sum(axis=-1)
    is_token = jnp.arange(weights.shape[-2])[None] < pairs.tgt_lengths[:, None]  # [rows, queries]
    sums = jnp.where(is_token[None, :, None], entropies, 0).sum(axis=-1)
    means = sums / jnp.maximum(pairs.tgt_lengths, 1)[None, :, None]  # [layers, rows, heads]
    sharpness = (_LEAST_ENTROPY + means) ** -2

    by_layer = jnp.einsum("nbh,nbhql->nbql", sharpness, weights)
    lower = weights.shape[0] // 2
    read, said = by_layer[:lower].sum(axis=0), by_layer[lower:].sum(axis=0)
    read = jnp.pad(read[:, 1:], [(0, 0), (0, 1), (0, 0)])
    return (read + said) / sharpness.sum(axis=(0, 2))[:, None, None]


@functools.partial(jax.jit, static_argnames="model")
def _all_weights(
    params: Mapping[str, Any], pairs: Pairs, *, model: Transformer
) -> tuple[Float[Array, "layers rows heads queries keys"], ...]:
    _, sown = _forward(params, model, pairs, with_attention=True)
    kinds = ("encoder", "self"), ("decoder", "self"), ("decoder", "cross")
    return tuple(
        _layer_weights(sown, model.config, stack, f"{kind}_attention") for stack, kind in kinds
    )


def _layer_weights(
    sown: Mapping[str, Any], config: ModelConfig, stack: str, kind: str
) -> Float[Array, "layers rows heads queries keys"]:
    layers = sown["intermediates"][stack]
    if config.scan_layers:
        return layers["layers"][kind]["weights"][0]
    count = config.encoder_layers if stack == "encoder" else config.decoder_layers
    return jnp.stack([layers[layer_name(i)][kind]["weights"][0] for i in range(count)])
