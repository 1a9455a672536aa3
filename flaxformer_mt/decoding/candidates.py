"""The best continuations of a beam: an exact top-k that reads the logits once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.rules import Allowed, Logits
from flaxformer_mt.model.embedding import CHUNK

LogProbs = Float[Array, "rows beams"]
Values = Float[Array, "rows chosen"]
Places = Int[Array, "rows chosen"]
Found = tuple[Values, Places, Places]
"""Candidates of each row: their log-probabilities, the beams they continue, and their tokens."""


def top_candidates(logits: Logits, log_probs: LogProbs, allowed: Allowed, *, count: int) -> Found:
    """The `count` likeliest one-token continuations of each row's hypotheses, best first.

    Log-probabilities are the model's, over the whole vocabulary. Of equal values the lower beam
    comes first, then the lower token. If fewer than `count` exist, the rest are -inf.

    The k best values lie in the k chunks with the highest maxima, so only maxima are compared over
    the whole vocabulary: `lax.top_k` over beams * vocab values took longer than the model's step.
    If no chunk's size divides the vocabulary, logits are padded, which copies them.
    """
    _, values, beam, token = _ranked(logits, log_probs, allowed, None, count=count)
    return values, beam, token


def diverse_candidates(
    logits: Logits,
    log_probs: LogProbs,
    allowed: Allowed,
    *,
    groups: int,
    count: int,
    diversity: Float[Array, ""],
) -> tuple[Values, Values, Places, Places]:
    """`count` continuations of each of `groups` equal groups of hypotheses, group by group.

    A group ranks a token lower by `diversity` for each hypothesis of an earlier group that chooses
    it at this step (diverse beam search with Hamming diversity; Vijayakumar et al., 2016,
    arXiv 1610.02424). Returns the values that they are ranked by, best first within a group, and
    what `top_candidates` returns: the log-probabilities stay the model's.
    """
    rows, beams, vocab = logits.shape
    width, row = beams // groups, jnp.arange(rows)[:, None]
    said = jnp.zeros((rows, vocab))
    found = []
    for group in range(groups):
        own = slice(group * width, (group + 1) * width)
        may = allowed.of_beams(own)
        ranked, values, beam, token = _ranked(
            logits[:, own], log_probs[:, own], may, said, count=count
        )
        found.append((ranked, values, beam + group * width, token))
        going, chosen = best(jnp.where(token == EOS, -jnp.inf, ranked), width)
        weight = jnp.where(jnp.isfinite(going), diversity, 0.0)
        said = said.at[row, jnp.take_along_axis(token, chosen, axis=1)].add(weight)
    return jax.tree.map(lambda *each: jnp.concatenate(each, axis=1), *found)


@jax.named_scope("candidates")
def _ranked(
    logits: Logits,
    log_probs: LogProbs,
    allowed: Allowed,
    against: Float[Array, "rows vocab"] | None,
    *,
    count: int,
) -> tuple[Values, Values, Places, Places]:
    """The log-probabilities less `against`, which rank them, and what `top_candidates` returns."""
    rows, beams, vocab = logits.shape
    log_norm = jax.nn.logsumexp(logits, axis=-1)

    ranking = logits if against is None else logits - against[:, None]
    maxima = _maxima(ranking, allowed)
    chunk_size, chunks = _chunk_size(vocab), maxima.shape[-1]
    maxima = log_probs[:, :, None] + (maxima - log_norm[:, :, None])
    _, chosen = best(maxima.reshape(rows, beams * chunks), min(count, beams * chunks))
    chosen = jnp.sort(chosen, axis=-1)  # ascending: ties below go by beam, then by token

    beam, chunk = chosen // chunks, chosen % chunks
    token = chunk[:, :, None] * chunk_size + jnp.arange(chunk_size)[None, None]
    may = _chunked(jnp.asarray(allowed.free), False).at[chunk].get(mode="promise_in_bounds")
    if allowed.banned is not None:
        may = may & ~_chosen(_chunked(allowed.banned, True), beam, chunk)
    only = allowed.only[:, None, None]
    may = jnp.where(only < 0, may, token == only)
    picked = jnp.where(may, _chosen(_chunked(logits, -jnp.inf), beam, chunk), -jnp.inf)
    picked = picked - take(log_norm, beam)[:, :, None]
    picked = take(log_probs, beam)[:, :, None] + picked

    token = jnp.minimum(token, vocab - 1)  # a valid type, even where no candidate exists
    picked = picked.reshape(rows, -1)
    token = token.reshape(rows, -1)
    ranked = picked if against is None else picked - take(against, token)
    ranked, flat = best(ranked, count)
    values = ranked if against is None else take(picked, flat)
    return ranked, values, take(beam, flat // chunk_size), take(token, flat)


def _maxima(ranking: Logits, allowed: Allowed) -> Float[Array, "rows beams chunks"]:
    """The highest allowed value of each chunk."""
    size = _chunk_size(ranking.shape[-1])
    # Those with types that are never generated, whose maxima are taken again.
    chunks = np.unique(np.flatnonzero(~allowed.free) // size)

    def masked(ranking: Logits) -> Array:
        may = allowed.mask(ranking.shape[1])
        return _chunked(jnp.where(may, ranking, -jnp.inf), -jnp.inf).max(axis=-1)

    def unmasked(ranking: Logits) -> Array:
        may = ranking
        if allowed.banned is not None:
            may = jnp.where(allowed.banned, -jnp.inf, ranking)
        maxima = _chunked(may, -jnp.inf).max(axis=-1)
        for chunk in chunks:
            types = slice(chunk * size, (chunk + 1) * size)
            own = jnp.where(allowed.free[types], may[:, :, types], -jnp.inf).max(axis=-1)
            maxima = maxima.at[:, :, chunk].set(own)
        only = jnp.broadcast_to(allowed.only[:, None, None], (*maxima.shape[:2], 1))
        value = jnp.take_along_axis(ranking, jnp.maximum(only, 0), axis=2)
        its = np.arange(maxima.shape[2])[None, None] == only // size
        return jnp.where(only < 0, maxima, jnp.where(its, value, -jnp.inf))

    if len(chunks) > 8:  # each is a part of the program
        return masked(ranking)
    # A TPU masks while it reads; others would write all logits again.
    found: Array = jax.lax.platform_dependent(ranking, tpu=masked, default=unmasked)
    return found


def _chunk_size(vocab: int) -> int:
    """CHUNK, or the nearest smaller number that divides the vocabulary."""
    return next((size for size in range(CHUNK, 31, -1) if vocab % size == 0), CHUNK)


def _chunked(x: Array, fill: float | bool) -> Array:
    size = _chunk_size(x.shape[-1])
    if rest := -x.shape[-1] % size:
        x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, rest)], constant_values=fill)
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


def take(x: Array, index: Places) -> Array:
    """x[row, index[row]]: the chosen entries of axis 1."""
    index = index.reshape(index.shape + (1,) * (x.ndim - 2))
    return jnp.take_along_axis(x, index, axis=1, mode="promise_in_bounds")


def best(values: Float[Array, "rows of"], count: int) -> tuple[Values, Places]:
    """`lax.top_k`. On a TPU it takes passes, because the compiler gives no cost for `top_k`."""
    return jax.lax.platform_dependent(
        values,
        tpu=functools.partial(by_passes, count=count),
        default=lambda values: tuple(jax.lax.top_k(values, count)),
    )


def by_passes(values: Float[Array, "rows of"], *, count: int) -> tuple[Values, Places]:
    """`lax.top_k`, one maximum after another."""
    # Values that were found sink below all others.
    left = jnp.maximum(values, jnp.finfo(values.dtype).min)
    found = []
    for _ in range(count):
        found.append(jnp.argmax(left, axis=1, keepdims=True))
        left = jnp.where(jnp.arange(left.shape[1])[None] == found[-1], -jnp.inf, left)
    index = jnp.concatenate(found, axis=1)
    return take(values, index), index
