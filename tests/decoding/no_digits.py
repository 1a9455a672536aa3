"""A mask of a caller's own: no output has a digit."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from flaxformer_mt.data.vocabulary import Vocabulary
from flaxformer_mt.decoding.masks.base import MaskArrays


@dataclasses.dataclass(frozen=True)
class NoDigits:
    """Bans the types whose text has a digit."""

    types: tuple[int, ...]

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "NoDigits":
        texts = vocabulary.pieces()
        return cls(tuple(n for n, text in enumerate(texts) if any(map(str.isdigit, text))))

    def arrays(self, sources, types, shape):
        return MaskArrays(shared=np.isin(types, self.types))

    def banned(self, arrays, generated):
        banned = jnp.asarray(arrays.shared)[None, None]
        return jnp.broadcast_to(banned, (*generated.tokens.shape[:2], banned.shape[2]))
