"""What this program makes of sentences, in float32 throughout: what other runtimes are held to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float

from flaxformer_mt.decoding import Translator
from flaxformer_mt.decoding.batch_search import output_limit
from flaxformer_mt.decoding.batches import translate_ids
from flaxformer_mt.decoding.segments import Part
from flaxformer_mt.decoding.teacher_forcing import TeacherForcing

Rows = Sequence[Sequence[int]]  # token ids
LogProbs = Float[np.ndarray, " tokens"]


class Reference:
    """Greedy outputs and log-probabilities of a run's model, token ids in and out.

    Whatever `model.dtype` is, products are float32 at full precision, also where the hardware
    would round their operands.
    """

    def __init__(self, translator: Translator) -> None:
        self.vocabularies = translator.vocabularies
        config = dataclasses.replace(translator.model.config, dtype="float32")
        self.longest = config.max_length
        """Tokens that a source may have, the end mark included."""
        # The model alone: rules of the search are not among what every program has.
        search = dataclasses.replace(
            translator.config,
            beam_size=1,
            diverse_groups=1,
            length_penalty=0.0,
            no_repeat_ngram=0,
        )
        model = translator.model.clone(config=config)
        self._forcing = TeacherForcing(translator.params, model, search, translator.mesh)

    def limits(self, sources: Rows) -> list[int]:
        """The most tokens that each source's output may have, the end mark included."""
        config = self._forcing.config
        return [output_limit(config, len(ids), self.longest) for ids in sources]

    def greedy(self, sources: Rows) -> list[list[int]]:
        """The greedy output of each source (pieces + EOS), without its end mark."""
        forcing = self._forcing
        with jax.default_matmul_precision("highest"):
            return translate_ids(forcing.params, forcing.model, sources, forcing.config)

    def log_probs(self, sources: Rows, targets: Rows) -> list[LogProbs]:
        """Natural log-probability of every token of each target and of the end mark after it."""
        parts = [
            Part("", tuple(source[:-1]), "", tuple(target))
            for source, target in zip(sources, targets, strict=True)
        ]
        with jax.default_matmul_precision("highest"):
            return self._forcing.log_probs(parts)
