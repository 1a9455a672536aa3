"""The best continuations of a beam: an exact top-k that reads the logits once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.masks.base import Allowed
from flaxformer_mt.decoding.top_k import (
    Candidates,
    Logits,
    LogProbs,
    Places,
    Values,
    largest,
    take,
)
from flaxformer_mt.model.embedding import CHUNK


class Ranked(NamedTuple):
    """Candidates, best first within a group, and what they are ranked by."""

    ranks: Values
    candidates: Candidates


def top_candidates(
    logits: Logits, log_probs: LogProbs, allowed: Allowed, *, count: int
) -> Candidates:
    """The `count` likeliest one-token continuations of each row's hypotheses, best first.

    Log-probabilities are the model's, over the whole vocabulary. Of equal values the lower beam
    comes first, then the lower token. If fewer than `count` exist, the rest are -inf.

    The k best values lie in the k chunks with the highest maxima, so only maxima are compared over
    the whole vocabulary: `lax.top_k` over beams * vocab values took longer than the model's step.
    If no chunk's size divides the vocabulary, logits are padded, which copies them.
    """
    return _ranked(logits, log_probs, allowed, None, count=count).candidates


def diverse_candidates(
    logits: Logits,
    log_probs: LogProbs,
    allowed: Allowed,
    *,
    groups: int,
    count: int,
    diversity: Float[Array, ""],
) -> Ranked:
    """`count` continuations of each of `groups` equal groups of hypotheses, group by group.

    A group ranks a token lower by `diversity` for each hypothesis of an earlier group that chooses
    it at this step (diverse beam search with Hamming diversity; Vijayakumar et al., 2016,
    arXiv 1610.02424). The candidates' log-probabilities stay the model's.
    """
    rows, beams, vocab = logits.shape
    width = beams // groups
    row = jnp.arange(rows)[:, None]
    chosen_before = jnp.zeros((rows, vocab))  # by earlier groups, times `diversity`
    by_group = []
    for group in range(groups):
        members = slice(group * width, (group + 1) * width)
        ranks, (group_log_probs, beam, token) = _ranked(
            logits[:, members],
            log_probs[:, members],
            allowed.of_beams(members),
            chosen_before,
            count=count,
        )
        candidates = Candidates(group_log_probs, beam + group * width, token)
        by_group.append(Ranked(ranks, candidates))

        live, places = largest(jnp.where(token == EOS, -jnp.inf, ranks), width)
        weight = jnp.where(jnp.isfinite(live), diversity, 0.0)
        tokens = jnp.take_along_axis(token, places, axis=1)  # --> [rows, width]
        chosen_before = chosen_before.at[row, tokens].add(weight)

    all_groups: Ranked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *by_group)
    return all_groups


@jax.named_scope("candidates")
def _ranked(
    logits: Logits,
    log_probs: LogProbs,
    allowed: Allowed,
    against: Float[Array, "rows vocab"] | None,
    *,
    count: int,
) -> Ranked:
    """`top_candidates`, ranked by their log-probabilities less `against`."""
    rows, beams, vocab = logits.shape
    log_norm = _log_norm(logits)  # --> [rows, beams]

    ranking = logits if against is None else logits - against[:, None]
    maxima = _maxima(ranking, allowed)  # --> [rows, beams, chunks]
    chunk_size, chunks = _chunk_size(vocab), maxima.shape[-1]
    maxima = log_probs[:, :, None] + (maxima - log_norm[:, :, None])
    _, chosen = largest(maxima.reshape(rows, beams * chunks), min(count, beams * chunks))
    chosen = jnp.sort(chosen, axis=-1)  # ascending: ties below go by beam, then by token

    beam, chunk = chosen // chunks, chosen % chunks
    token = chunk[:, :, None] * chunk_size + jnp.arange(chunk_size)[None, None]
    may = _may_come(allowed, beam, chunk, token)  # --> [rows, chosen, chunk_size]
    picked = jnp.where(may, _chosen(_chunked(logits, -jnp.inf), beam, chunk), -jnp.inf)
    picked = picked - take(log_norm, beam)[:, :, None]
    picked = take(log_probs, beam)[:, :, None] + picked

    token = jnp.minimum(token, vocab - 1)  # a valid type, even where no candidate exists
    picked = picked.reshape(rows, -1)  # --> [rows, chosen * chunk_size]
    token = token.reshape(rows, -1)
    ranks = picked if against is None else picked - take(against, token)
    ranks, flat = largest(ranks, count)  # --> [rows, count]
    kept_log_probs = ranks if against is None else take(picked, flat)
    candidates = Candidates(kept_log_probs, take(beam, flat // chunk_size), take(token, flat))
    return Ranked(ranks, candidates)


def _log_norm(logits: Logits) -> LogProbs:
    """log(sum(exp(logits))) over the vocabulary."""

    def by_chunks(logits: Logits) -> LogProbs:
        # The search takes the chunks' maxima anyway. Without the barrier XLA would join the two
        # reductions to one of its own, which reads all logits again.
        maxima = jax.lax.optimization_barrier(_chunked(logits, -jnp.inf).max(axis=-1))
        highest = maxima.max(axis=-1)
        highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
        return jnp.log(jnp.exp(logits - highest[:, :, None]).sum(axis=-1)) + highest

    def at_once(logits: Logits) -> LogProbs:
        return jax.nn.logsumexp(logits, axis=-1)

    log_norm: LogProbs = jax.lax.platform_dependent(logits, cuda=by_chunks, default=at_once)
    return log_norm


def _may_come(
    allowed: Allowed, beam: Places, chunk: Places, token: Int[Array, "rows chosen size"]
) -> Bool[Array, "rows chosen size"]:
    """Whether each token of the chosen chunks is allowed."""
    may = _chunked(jnp.asarray(allowed.free), False).at[chunk].get(mode="promise_in_bounds")
    if allowed.banned is not None:
        may = may & ~_chosen(_chunked(allowed.banned, True), beam, chunk)
    only = allowed.only[:, None, None]
    return jnp.where(only < 0, may, token == only)


def _maxima(ranking: Logits, allowed: Allowed) -> Float[Array, "rows beams chunks"]:
    """The highest allowed value of each chunk."""
    size = _chunk_size(ranking.shape[-1])
    # Chunks with types that are never generated: their maxima are taken again.
    chunks = np.unique(np.flatnonzero(~allowed.free) // size)

    def of_allowed(ranking: Logits) -> Array:
        may = allowed.flags(ranking.shape[1])
        return _chunked(jnp.where(may, ranking, -jnp.inf), -jnp.inf).max(axis=-1)

    def with_some_again(ranking: Logits) -> Array:
        values = ranking
        if allowed.banned is not None:
            values = jnp.where(allowed.banned, -jnp.inf, ranking)
        maxima = _chunked(values, -jnp.inf).max(axis=-1)
        for chunk in chunks:
            types = slice(chunk * size, (chunk + 1) * size)
            free = jnp.where(allowed.free[types], values[:, :, types], -jnp.inf)
            maxima = maxima.at[:, :, chunk].set(free.max(axis=-1))
        only = jnp.broadcast_to(allowed.only[:, None, None], (*maxima.shape[:2], 1))
        value = jnp.take_along_axis(ranking, jnp.maximum(only, 0), axis=2)
        in_chunk = np.arange(maxima.shape[2])[None, None] == only // size
        return jnp.where(only < 0, maxima, jnp.where(in_chunk, value, -jnp.inf))

    if len(chunks) > 8:  # each is a part of the program
        return of_allowed(ranking)
    # A TPU applies the flags while it reads; others would write all logits again.
    maxima: Array = jax.lax.platform_dependent(ranking, tpu=of_allowed, default=with_some_again)
    return maxima


def _chunk_size(vocab: int) -> int:
    """CHUNK, or the nearest smaller number that divides the vocabulary."""
    return next((size for size in range(CHUNK, 31, -1) if vocab % size == 0), CHUNK)


def _chunked(x: Array, fill: float | bool) -> Array:
    """[..., vocab] --> [..., chunks, size]"""
    size = _chunk_size(x.shape[-1])
    padding = -x.shape[-1] % size
    if padding:
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, padding)], constant_values=fill)
    return x.reshape(*x.shape[:-1], -1, size)


def _chosen(
    x: Shaped[Array, "rows beams chunks size"], beam: Places, chunk: Places
) -> Shaped[Array, "rows chosen size"]:
    """x[row, beam, chunk]. The index follows a TPU's layout of logits: by the axes of x it would
    copy them all first."""
    rows, _, chunks, size = x.shape
    flat = x.transpose(1, 2, 0, 3).reshape(-1, size)
    index = (beam * chunks + chunk) * rows + jnp.arange(rows)[:, None]
    return flat.at[index].get(mode="promise_in_bounds")
