"""The callback with which training decodes its validation set."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.prepare import valid_text
from flaxformer_mt.data.vocabulary import EOS, Vocabularies
from flaxformer_mt.decoding.decode import translate_ids
from flaxformer_mt.evaluation.bleu import corpus_scores
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.training.loop import Decode
from flaxformer_mt.training.program import Program

SAMPLES = 8


def validation_decoder(
    run: RunDirectory, config: ExperimentConfig, vocabularies: Vocabularies, program: Program
) -> Decode:
    """`(params, step) -> {"bleu": ..., "chrf": ...}` over the run's validation text.

    Each call leaves a few sentences under `samples/`: source, reference, hypothesis.
    """
    sources, references = valid_text(run.data)
    encoded = [[*ids, EOS] for ids in vocabularies.src.encode(sources)]
    fits = [i for i, ids in enumerate(encoded) if len(ids) <= config.model.max_length]
    if len(fits) < len(encoded):
        print(
            f"validation: {len(encoded) - len(fits)} sentences are longer than model.max_length and count "
            "as untranslated in BLEU",
            file=sys.stderr,
        )
    settings = dataclasses.replace(config.decoding, beam_size=config.training.validate_beam)

    def decode(params: Any, step: int) -> Mapping[str, float]:
        ids = translate_ids(params, program.model, [encoded[i] for i in fits], settings)
        hypotheses = [""] * len(sources)
        for i, text in zip(fits, vocabularies.tgt.decode(ids), strict=True):
            hypotheses[i] = text
        scores = corpus_scores(hypotheses, references, tokenized=config.data.tokenized)
        run.samples.mkdir(exist_ok=True)
        stride = max(1, len(sources) // SAMPLES)
        text = "\n".join(
            f"source     {sources[i]}\nreference  {references[i]}\nhypothesis {hypotheses[i]}\n"
            for i in range(0, len(sources), stride)
        )
        (run.samples / f"step-{step}.txt").write_text(text, encoding="utf-8")
        return {"bleu": scores.bleu, "chrf": scores.chrf}

    return decode
