"""The best continuations of a beam: an exact top-k that reads the logits once."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxformer_mt.data.vocabulary import EOS

CHUNK = 128  # types a chunk: one vector register row of a TPU


def top_candidates(
    logits: Float[Array, "rows beams vocab"],
    log_probs: Float[Array, "rows beams"],
    allowed: Bool[Array, "rows beams_or_1 vocab"],
    *,
    count: int,
) -> tuple[Float[Array, "rows count"], Int[Array, "rows count"], Int[Array, "rows count"]]:
    """The `count` likeliest one-token continuations of each row's hypotheses, best first.

    Returns their log-probabilities (the model's: the softmax is over the whole vocabulary), the
    beams that they continue and their tokens. Equal values go to the lower beam, then to the lower
    token. Where fewer than `count` exist, the rest have log-probability -inf.

    The k best values lie in the k chunks with the highest maxima, so only maxima are compared over
    the whole vocabulary: `lax.top_k` over beams * vocab values took longer than the model's step.
    """
    _, values, beam, token = _ranked(logits, log_probs, allowed, None, count=count)
    return values, beam, token


def diverse_candidates(
    logits: Float[Array, "rows beams vocab"],
    log_probs: Float[Array, "rows beams"],
    allowed: Bool[Array, "rows beams_or_1 vocab"],
    *,
    groups: int,
    count: int,
    diversity: Float[Array, ""],
) -> tuple[
    Float[Array, "rows groups*count"],
    Float[Array, "rows groups*count"],
    Int[Array, "rows groups*count"],
    Int[Array, "rows groups*count"],
]:
    """`count` continuations of each of `groups` equal groups of hypotheses, group by group.

    A group ranks a token lower by `diversity` for each hypothesis of an earlier group that goes on
    with it at this step (diverse beam search with Hamming diversity; Vijayakumar et al., 2016,
    arXiv 1610.02424). Returns the values they are ranked by, best first within a group, and the
    three of `top_candidates`: the log-probabilities stay the model's.
    """
    rows, beams, vocab = logits.shape
    width, row = beams // groups, jnp.arange(rows)[:, None]
    said = jnp.zeros((rows, vocab))
    found = []
    for group in range(groups):
        own = slice(group * width, (group + 1) * width)
        ranked, values, beam, token = _ranked(
            logits[:, own],
            log_probs[:, own],
            allowed[:, own] if allowed.shape[1] > 1 else allowed,
            said,
            count=count,
        )
        found.append((ranked, values, beam + group * width, token))
        going, chosen = jax.lax.top_k(jnp.where(token == EOS, -jnp.inf, ranked), width)
        weight = jnp.where(jnp.isfinite(going), diversity, 0.0)
        said = said.at[row, jnp.take_along_axis(token, chosen, axis=1)].add(weight)
    return jax.tree.map(lambda *each: jnp.concatenate(each, axis=1), *found)


def _ranked(
    logits: Float[Array, "rows beams vocab"],
    log_probs: Float[Array, "rows beams"],
    allowed: Bool[Array, "rows beams_or_1 vocab"],
    against: Float[Array, "rows vocab"] | None,
    *,
    count: int,
) -> tuple[Array, Array, Array, Array]:
    """What `top_candidates` returns, in the order of its first: with `against` subtracted."""
    rows, beams, vocab = logits.shape
    log_norm = jax.nn.logsumexp(logits, axis=-1)

    ranking = logits if against is None else logits - against[:, None]
    maxima = _chunk_maxima(jnp.where(allowed, ranking, -jnp.inf))
    chunks = maxima.shape[-1]
    best = log_probs[:, :, None] + (maxima - log_norm[:, :, None])
    kept = min(count, beams * chunks)
    chosen = jax.lax.top_k(best.reshape(rows, beams * chunks), kept)[1]
    chosen = jnp.sort(chosen, axis=-1)  # ascending: ties below go by beam, then by token

    beam, chunk = chosen // chunks, chosen % chunks
    token = chunk[:, :, None] * CHUNK + jnp.arange(CHUNK)[None, None, :]
    row = jnp.arange(rows)[:, None, None]
    exists = token < vocab
    token = jnp.minimum(token, vocab - 1)
    theirs = beam[:, :, None] if allowed.shape[1] > 1 else jnp.zeros_like(beam)[:, :, None]
    picked = logits[row, beam[:, :, None], token]
    picked = jnp.where(exists & allowed[row, theirs, token], picked, -jnp.inf)
    picked = picked - jnp.take_along_axis(log_norm, beam, axis=1)[:, :, None]
    picked = jnp.take_along_axis(log_probs, beam, axis=1)[:, :, None] + picked

    picked, token = picked.reshape(rows, kept * CHUNK), token.reshape(rows, kept * CHUNK)
    ranked = picked if against is None else picked - jnp.take_along_axis(against, token, axis=1)
    ranked, flat = jax.lax.top_k(ranked, count)
    values = ranked if against is None else jnp.take_along_axis(picked, flat, axis=1)
    beam = jnp.take_along_axis(beam, flat // CHUNK, axis=1)
    return ranked, values, beam, jnp.take_along_axis(token, flat, axis=1)


def _chunk_maxima(
    values: Float[Array, "rows beams vocab"],
) -> Float[Array, "rows beams chunks"]:
    rows, beams, vocab = values.shape
    whole = vocab - vocab % CHUNK
    maxima = values[:, :, :whole].reshape(rows, beams, whole // CHUNK, CHUNK).max(axis=-1)
    if whole == vocab:
        return maxima
    # Padding the last chunk instead would copy the whole array.
    rest = values[:, :, whole:].max(axis=-1, keepdims=True)
    return jnp.concatenate([maxima, rest], axis=-1)
