"""Token ids to token ids in batches of few shapes: what translation and validation share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.stages import Lowered
from jaxtyping import Array, Float, Int

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.search import Hypotheses, beam_search
from flaxformer_mt.model import Transformer, table_rows
from flaxformer_mt.parallel import local_mesh, on_mesh, place_batch, whole_on

SHORTEST = 16  # source positions of the smallest batch shape


class DecodingError(ValueError):
    """A sentence that the model cannot take, or a model whose outputs are not numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoded:
    """One output of the search: its tokens without the end mark, and what the model makes of it."""

    tokens: tuple[int, ...]
    log_prob: float  # natural logarithm, the end mark's included
    score: float  # log_prob / length penalty
    at_limit: bool  # as long as an output may be: it may have ended for that reason


def translate_ids(
    params: Mapping[str, Any],
    model: Transformer,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
) -> list[list[int]]:
    """The best output of each source (pieces + EOS), in order, without its end mark.

    Compiled programs are kept between calls, for any parameters of the same model.
    Raises DecodingError.
    """
    decoded = decode_ids(params, model, sources, config)
    return [list(hypotheses[0].tokens) for hypotheses in decoded]


def decode_ids(
    params: Mapping[str, Any],
    model: Transformer,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    *,
    n_best: int = 1,
    suppress: tuple[int, ...] = (UNK,),
    mesh: Mesh | None = None,
) -> list[list[Decoded]]:
    """Up to `n_best` outputs of each source (pieces + EOS), best first, in the sources' order.

    `params` is the tree under "params". The sentences of a batch are split over the data axes of
    `mesh` (default: all devices of this process), where every device has all parameters: the
    largest of the paper's models fits many times, and a search split any other way would have to
    gather them at each token. An output has at most the source's length plus
    `max_extra_tokens` tokens, and at most `model.max_length`, both with the end mark. The unknown
    token is not generated unless `suppress` leaves it out: no text corresponds to it.

    Raises DecodingError for a source without tokens or longer than `model.max_length`, and where
    scores are not numbers.
    """
    longest = model.config.max_length
    for number, source in enumerate(sources):
        if not 1 <= len(source) <= longest:
            raise DecodingError(
                f"source {number} has {len(source)} tokens; the model takes 1 to {longest} "
                "(model.max_length), the end mark included"
            )
    mesh = local_mesh() if mesh is None else mesh
    parts = mesh.shape["data"] * mesh.shape["fsdp"]
    params = whole_on(params, mesh)
    # Rows of the softmax matrix beyond the vocabulary stand for nothing.
    types = model.tgt_vocab_size
    suppress = (*suppress, *range(types, table_rows(model.config, types)))
    decoded: list[list[Decoded]] = [[] for _ in sources]
    lengths = [len(source) for source in sources]
    for batch in plan_batches(lengths, config, longest, split=parts):
        src = np.full((batch.rows, batch.src_length), PAD, np.int32)
        src_lengths = np.zeros(batch.rows, np.int32)
        for row, number in enumerate(batch.sources):
            src[row, : lengths[number]] = sources[number]
            src_lengths[row] = lengths[number]
        with on_mesh(mesh):
            hypotheses = _search(
                params,
                *place_batch((src, src_lengths), mesh),
                np.float32(config.length_penalty),
                np.int32(config.max_extra_tokens),
                model=model,
                beam_size=config.beam_size,
                n_best=n_best,
                max_length=min(batch.src_length + config.max_extra_tokens, longest),
                suppress=suppress,
            )
        hypotheses = jax.tree.map(np.asarray, hypotheses)
        for row, number in enumerate(batch.sources):
            limit = min(lengths[number] + config.max_extra_tokens, longest)
            decoded[number] = _decoded(hypotheses, row, limit)
    return decoded


def compilations() -> int:
    """Batch shapes and settings compiled so far in this process."""
    return int(_search._cache_size())  # type: ignore[attr-defined]


def lower_search(
    params: Mapping[str, Any],
    model: Transformer,
    config: DecodingConfig,
    *,
    rows: int,
    src_length: int,
    sharding: jax.sharding.Sharding,
) -> Lowered:
    """The search of one batch shape, lowered for the devices of `sharding`; nothing is computed.

    `params` may be abstract (`jax.ShapeDtypeStruct` with shardings).
    """

    def abstract(shape: tuple[int, ...], dtype: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    return _search.lower(
        params,
        abstract((rows, src_length), jnp.int32),
        abstract((rows,), jnp.int32),
        abstract((), jnp.float32),
        abstract((), jnp.int32),
        model=model,
        beam_size=config.beam_size,
        n_best=1,
        max_length=min(src_length + config.max_extra_tokens, model.config.max_length),
        suppress=(UNK,),
    )


@dataclasses.dataclass(frozen=True)
class DecodingBatch:
    """Which sources share a batch, and its shape; rows beyond them are padding."""

    sources: tuple[int, ...]
    rows: int
    src_length: int


def plan_batches(
    lengths: Sequence[int], config: DecodingConfig, max_length: int, *, split: int = 1
) -> Iterator[DecodingBatch]:
    """Batches over sources of these lengths, the longest first, in few shapes.

    A shape's length is a power of two (or `max_length`). Its rows are `split` equal parts, each the
    power of two that fills `batch_tokens` = rows * beams * length: one shape a length, and for the
    last batch one of fewer rows. A part may exceed the budget only with a single row.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    done = 0
    while done < len(order):
        needed = max(lengths[order[done]], SHORTEST)
        src_length = min(_power_of_two_at_least(needed), max(max_length, needed))
        rows = max(config.batch_tokens // (src_length * config.beam_size), 1)
        rows = 1 << (rows.bit_length() - 1)
        sources = tuple(order[done : done + rows * split])
        filled = _power_of_two_at_least(-(-len(sources) // split))
        yield DecodingBatch(sources, min(rows, filled) * split, src_length)
        done += len(sources)


def _power_of_two_at_least(number: int) -> int:
    return 1 << (number - 1).bit_length()


@functools.partial(
    jax.jit, static_argnames=("model", "beam_size", "n_best", "max_length", "suppress")
)
def _search(
    params: Mapping[str, Any],
    src: Int[Array, "rows src_length"],
    src_lengths: Int[Array, " rows"],
    alpha: Float[Array, ""],
    max_extra_tokens: Int[Array, ""],
    *,
    model: Transformer,
    beam_size: int,
    n_best: int,
    max_length: int,
    suppress: tuple[int, ...],
) -> Hypotheses:
    variables = {"params": params}
    positions = jnp.broadcast_to(jnp.arange(src.shape[1]), src.shape)
    segment_ids = (positions < src_lengths[:, None]).astype(jnp.int32)
    encoded = model.apply(
        variables,
        src,
        src_segment_ids=segment_ids,
        src_positions=positions * segment_ids,
        deterministic=True,
        method=Transformer.encode,
    )
    cache: Any = model.apply(
        variables,
        encoded,
        segment_ids,
        beams=beam_size,
        length=max_length,
        method=Transformer.start_cache,
    )

    def step(tokens: Array, index: Array, cache: Any) -> Any:
        return model.apply(variables, tokens, index, cache, method=Transformer.decode_step)

    return beam_search(
        step,
        cache,
        source_lengths=src_lengths,
        beam_size=beam_size,
        alpha=alpha,
        max_extra_tokens=max_extra_tokens,
        max_length=max_length,
        bos=BOS,
        eos=EOS,
        pad=PAD,
        n_best=n_best,
        suppress=suppress,
    )


def _decoded(hypotheses: Hypotheses, row: int, limit: int) -> list[Decoded]:
    found = []
    for slot, score in enumerate(hypotheses.scores[row].tolist()):
        length = int(hypotheses.lengths[row, slot])
        if np.isneginf(score) and slot > 0:
            break
        if not np.isfinite(score):
            raise DecodingError(
                "the model's scores are not numbers: its parameters are damaged or its training "
                "diverged; use another checkpoint"
            )
        found.append(
            Decoded(
                tokens=tuple(hypotheses.tokens[row, slot, : length - 1].tolist()),
                log_prob=float(hypotheses.log_probs[row, slot]),
                score=score,
                at_limit=length == limit,
            )
        )
    return found
