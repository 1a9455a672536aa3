"""BLEU as one of what training is validated by: its validation set, decoded."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.api import say
from flaxformer_mt.data.prepare import valid_text
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.decoding.translator import Translator, translate_together
from flaxformer_mt.evaluation.scoring import corpus_scores
from flaxformer_mt.parallel import Processes
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.validation import Evaluator

SAMPLES = 8


def bleu_evaluator(
    program: Program,
    vocabularies: Vocabularies,
    run: RunDirectory,
    samples: Path,
    processes: Processes,
) -> Evaluator:
    """`(params, step) -> {"bleu": ..., "chrf": ...}` over the whole validation text of the run.

    Each call leaves a few sentences under `samples`: source, reference, hypothesis. Of several
    processes each translates its share, and the first scores for all.
    """
    config = program.config
    sources, references = valid_text(local_copy(run.data))
    settings = dataclasses.replace(
        config.decoding, beam_size=config.training.validate_beam, diverse_groups=1
    )
    shown = range(0, len(sources), max(1, len(sources) // SAMPLES))

    def scored(hypotheses: Sequence[str], step: int) -> dict[str, float]:
        scores = corpus_scores(hypotheses, references, tokenized=config.data.tokenized)
        text = "\n".join(
            f"source     {sources[i]}\nreference  {references[i]}\nhypothesis {hypotheses[i]}\n"
            for i in shown
        )
        try:
            samples.mkdir(exist_ok=True)
            (samples / f"step-{step}.txt").write_text(text, encoding="utf-8")
        except OSError as error:
            # For the reader alone: a full disk is no reason to end training.
            say(f"{samples}: cannot be written: {error.strerror}; training goes on")
        return {"bleu": scores.bleu, "chrf": scores.chrf}

    def evaluate(params: Any, step: int) -> Mapping[str, float]:
        translator = Translator(params, program.model, vocabularies, settings, name=f"step {step}")
        translations = translate_together(translator, sources, processes)
        return processes.first(lambda: scored([each.text for each in translations], step))

    return evaluate
