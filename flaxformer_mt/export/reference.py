"""What this program makes of sentences, in float32 throughout: what other runtimes are held to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD
from flaxformer_mt.decoding import Translator
from flaxformer_mt.decoding.batch_search import output_limit
from flaxformer_mt.decoding.decode import decode_ids
from flaxformer_mt.model import Transformer

ROWS = 4  # scored together: their logits are whole, a float32 for each type at each position


class Reference:
    """Greedy outputs and log-probabilities of a run's model, token ids in and out.

    Whatever `model.dtype` is, products are float32 at full precision, also where the hardware
    would round their operands.
    """

    def __init__(self, translator: Translator) -> None:
        self.vocabularies = translator.vocabularies
        model = translator.model
        self._model = Transformer(
            dataclasses.replace(model.config, dtype="float32"),
            model.src_vocab_size,
            model.tgt_vocab_size,
        )
        self._params = translator.params
        # The model alone: rules of the search are not among what every program has.
        self._decoding = dataclasses.replace(
            translator.config,
            beam_size=1,
            diverse_groups=1,
            length_penalty=0.0,
            no_repeat_ngram=0,
        )

    @property
    def longest(self) -> int:
        """Tokens that a source may have, the end mark included."""
        return self._model.config.max_length

    def limits(self, sources: Sequence[Sequence[int]]) -> list[int]:
        """The most tokens that each source's output may have, the end mark included."""
        return [output_limit(self._decoding, len(ids), self.longest) for ids in sources]

    def greedy(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """The greedy output of each source (pieces + EOS), without its end mark."""
        with jax.default_matmul_precision("highest"):
            decoded = decode_ids((self._params,), (self._model,), sources, self._decoding)
        return [list(hypotheses[0].tokens) for hypotheses in decoded]

    def log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " tokens"]]:
        """Natural log-probability of every token of each target and of the end mark after it."""
        src = _padded(sources)
        tgt_in = _padded([[BOS, *target] for target in targets])
        tgt_out = _padded([[*target, EOS] for target in targets])
        src_segment_ids = _segments([len(ids) for ids in sources], src.shape[1])
        tgt_segment_ids = _segments([len(ids) + 1 for ids in targets], tgt_in.shape[1])
        arrays = (src, src_segment_ids, tgt_in, tgt_segment_ids, tgt_out)
        score = jax.jit(self._score)
        with jax.default_matmul_precision("highest"):
            rows = [
                row
                for start in range(0, len(sources), ROWS)
                for row in np.asarray(
                    score(self._params, *(array[start : start + ROWS] for array in arrays))
                )
            ]
        return [row[: len(target) + 1] for row, target in zip(rows, targets, strict=True)]

    def _score(
        self,
        params: dict[str, Array],
        src: Int[Array, "rows src_length"],
        src_segment_ids: Int[Array, "rows src_length"],
        tgt_in: Int[Array, "rows tgt_length"],
        tgt_segment_ids: Int[Array, "rows tgt_length"],
        tgt_out: Int[Array, "rows tgt_length"],
    ) -> Float[Array, "rows tgt_length"]:
        def positions(ids: Array) -> Array:
            return jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)

        hidden: Any = self._model.apply(
            {"params": params},
            src,
            tgt_in,
            src_segment_ids=src_segment_ids,
            tgt_segment_ids=tgt_segment_ids,
            src_positions=positions(src),
            tgt_positions=positions(tgt_in),
            deterministic=True,
        )
        logits: Any = self._model.apply({"params": params}, hidden, method=Transformer.logits)
        log_probs = jax.nn.log_softmax(logits, axis=-1)
        return jnp.take_along_axis(log_probs, tgt_out[:, :, None], axis=-1)[:, :, 0]


def _padded(rows: Sequence[Sequence[int]]) -> Int[np.ndarray, "rows length"]:
    table = np.full((len(rows), max(map(len, rows))), PAD, np.int32)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def _segments(lengths: Sequence[int], width: int) -> Int[np.ndarray, "rows length"]:
    return (np.arange(width) < np.array(lengths)[:, None]).astype(np.int32)
