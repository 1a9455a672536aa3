"""No output is shorter than a number of tokens."""

import dataclasses
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.masks.base import Generated, MaskArrays, TypeFlags
from flaxformer_mt.decoding.source import Source, Types


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """Bans the end mark until an output has `min_length` tokens and at least `min_ratio` times as
    many as its source, end marks not counted, or reaches its limit."""

    min_length: int
    min_ratio: float

    def arrays(self, sources: Sequence[Source], types: Types, shape: tuple[int, int]) -> MaskArrays:
        """The fewest tokens of each row's output; of padding 0."""
        fewest = np.zeros(shape[0], np.int32)
        for row, source in enumerate(sources):
            # 0.1 * 30 is 3.0000000000000004.
            by_source = math.ceil(self.min_ratio * (len(source.tokens) - 1) - 1e-9)
            # A larger number would be beyond the integers; the limit of a row is far below.
            fewest[row] = min(max(self.min_length, by_source), np.iinfo(np.int32).max)
        return MaskArrays(rows=fewest)

    def banned(self, arrays: MaskArrays, generated: Generated) -> TypeFlags | None:
        """As `Mask.banned`."""
        rows, beams, _ = generated.tokens.shape
        too_short = generated.position < arrays.rows  # --> [rows]
        ends = jnp.arange(generated.vocab) == EOS  # --> [vocab]
        banned = too_short[:, None, None] & ends[None, None]  # --> [rows, 1, vocab]
        return jnp.broadcast_to(banned, (rows, beams, generated.vocab))
