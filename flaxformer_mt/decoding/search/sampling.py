"""Draws translations from the model's distribution instead of searching for the likeliest.

A draw's noise depends only on the seed, the line, its piece, the hypothesis's number and the
token's position.
"""

import dataclasses
import numbers

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from flaxformer_mt.decoding.masks.base import Index
from flaxformer_mt.decoding.top_k import Logits

SEED_WORDS = 5
"""uint32 that tell whose draws they are: two each of the seed and the line, one of the piece."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to draw translations. Raises TypeError for what isn't a number, and ValueError for what
    isn't a distribution in float32.

    A line's draws depend on `seed` and its number. `translate_file` and the command count lines
    from 1, but `Translator.translate` from its `first`, by default 0: `first=1` gives their draws.
    """

    temperature: float = 1.0  # below 1 nearer to the likeliest, above 1 farther
    top_k: int = 0  # of the likeliest k tokens (0: of all)
    top_p: float = 1.0  # of the fewest tokens whose probability reaches this
    seed: int = 1

    def __post_init__(self) -> None:
        float32 = np.finfo(np.float32)
        least, largest = float(float32.tiny), float(float32.max)  # devices take less for 0
        for name, kind, needed in (
            ("temperature", numbers.Real, "a number"),
            ("top_k", numbers.Integral, "an integer"),
            ("top_p", numbers.Real, "a number"),
            ("seed", numbers.Integral, "an integer"),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kind):
                raise TypeError(f"{name} = {value!r} must be {needed}")
        if self.top_k < 0:
            raise ValueError(f"top_k = {self.top_k} must be at least 0")
        for name, most in (("temperature", largest), ("top_p", 1.0)):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(
                    f"{name} = {value} must be above 0 (from {least:.2g} to {most:.2g})"
                )


def seed_words(seed: int, line: int, piece: int) -> tuple[int, ...]:
    """`SEED_WORDS` of a sentence; all different for lines and seeds up to 64 bits."""
    low, high = (1 << 32) - 1, 32
    return (seed >> high) & low, seed & low, (line >> high) & low, line & low, piece & low


def keys_of(
    words: UInt[Array, "rows words"], position: Index, *, beams: int
) -> Key[Array, "rows beams"]:
    # By name: the user's default may be another generator, with keys of other sizes.
    keys = jax.random.wrap_key_data(words[:, :2], impl="threefry2x32")
    fold = jax.vmap(jax.random.fold_in)
    for column in range(2, words.shape[1]):
        keys = fold(keys, words[:, column])
    keys = fold(keys, jnp.full(keys.shape, position))
    return jax.vmap(
        lambda key: jax.vmap(lambda beam: jax.random.fold_in(key, beam))(jnp.arange(beams))
    )(keys)


def sampled(
    logits: Logits,
    allowed: Bool[Array, "rows beams_or_1 vocab"],
    keys: Key[Array, "rows beams"],
    *,
    temperature: Float[Array, ""],
    top_k: int,
    top_p: Float[Array, ""],
) -> tuple[Float[Array, "rows beams"], Int[Array, "rows beams"]]:
    """One token for each hypothesis, and its log-probability under the model.

    Drawn from softmax(logits / temperature) over the `top_k` likeliest allowed types (0: all), and
    of those the fewest whose probability reaches `top_p` (the nucleus of Holtzman et al., 2020).
    Each hypothesis has its own key, so neighbours don't change a draw.
    """
    log_probs = jax.nn.log_softmax(logits, axis=-1)
    best = jnp.max(jnp.where(allowed, logits, -jnp.inf), axis=-1, keepdims=True)
    # The likeliest is 0 at any temperature: nothing overflows. What is not allowed comes after
    # the division, in which -inf at a high temperature may be no number.
    scaled = jnp.where(allowed, (logits - best) / temperature, -jnp.inf)
    if top_k:
        least = jax.lax.top_k(scaled, min(top_k, scaled.shape[-1]))[0][..., -1:]
        scaled = jnp.where(scaled >= least, scaled, -jnp.inf)
    scaled = _nucleus(scaled, top_p)
    noise = jax.vmap(jax.vmap(lambda key: jax.random.gumbel(key, logits.shape[2:])))(keys)
    token = jnp.argmax(scaled + noise, axis=-1)
    return jnp.take_along_axis(log_probs, token[..., None], axis=-1)[..., 0], token


def _nucleus(scaled: Logits, top_p: Float[Array, ""]) -> Logits:
    def cut(values: Array) -> Array:
        descending = -jnp.sort(-values, axis=-1)
        probs = jax.nn.softmax(descending, axis=-1)
        before = jnp.cumsum(probs, axis=-1) - probs
        least = jnp.min(jnp.where(before < top_p, descending, jnp.inf), axis=-1, keepdims=True)
        return jnp.where(values >= least, values, -jnp.inf)

    # Sorting a vocabulary takes longer than the model's step.
    return jax.lax.cond(top_p < 1.0, cut, lambda values: values, scaled)
