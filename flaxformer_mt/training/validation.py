"""Validation during training: the loss of the validation set, for one."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.order import StoredCorpus
from flaxformer_mt.data.pipeline import exchanged_pass, one_pass
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.training.loss import LossSums
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.telemetry import perplexity

_EXCHANGED = 4  # batches: some thousands of target tokens, whose mean tells hundredths of a nat
_UNNAMED = {"valid", ""}  # a store's name for data.valid, and that of pairs in memory
# Nats per token. A parser, most of whose tokens follow from those before, had 0.17 after 600 steps;
# a model prevented from using its source had 0.001.
_LITTLE = 0.02

# Parameters and step -> scores by name, such as {"bleu": 41.0}: the same ones in every process.
Evaluator = Callable[[Any, int], Mapping[str, float]]


def loss_evaluator(program: Program, pairs: TokenPairs, say: Callable[[str], None]) -> Evaluator:
    """`validation_loss` of these pairs, by corpus if there are several; `say` gets reasons to
    doubt it."""

    def evaluate(params: Any, step: int) -> Mapping[str, float]:
        sets: dict[str, StoredCorpus | None] = {corpus.name: corpus for corpus in pairs.corpora}
        if len(sets) == 1:
            sets = dict.fromkeys(sets)  # all of its pairs, wherever they were held out
        by_set = {
            name: validation_loss(program, pairs, params, corpus=corpus)
            for name, corpus in sets.items()
        }
        for name, scores in by_set.items():
            if doubtful := doubt(scores, step, program.config):
                say(doubtful if len(by_set) == 1 else f"{name}: {doubtful}")
        scores = mean_of_sets(by_set)
        # The mean of perplexities says little: that of the mean loss is their geometric mean.
        return {**scores, "perplexity": perplexity(scores["loss"])}

    return evaluate


def mean_of_sets(by_set: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The means of scores over validation sets, and each set's own under `score/set`; of
    `data.valid`, which is no such set, its scores."""
    sets = [*by_set.values()]
    if by_set.keys() <= _UNNAMED:
        return {**sets[0]}
    in_all = [name for name in sets[0] if all(name in scores for scores in sets)]
    means = {name: statistics.fmean(scores[name] for scores in sets) for name in in_all}
    return means | {
        f"{name}/{set_name}": score
        for set_name, scores in by_set.items()
        for name, score in scores.items()
    }


def validation_loss(
    program: Program, pairs: TokenPairs, params: Any, *, corpus: StoredCorpus | None = None
) -> dict[str, float]:
    """`loss` (plain negative log-likelihood, nats per target token) and `perplexity` of all pairs,
    or of one `corpus`.

    `source_gain` is how much higher the loss is with another pair's source of similar length; near
    0, the model ignores its source. It is computed on at most four batches, spread over the
    lengths, and left out if no batch has two pairs.
    """
    batch_config = program.config.data.batch
    share = program.share
    batches = one_pass(pairs, batch_config, share=share, corpus=corpus)
    sums = [program.eval_step(params, batch) for batch in batches]
    exchanged = exchanged_pass(pairs, batch_config, most=_EXCHANGED, share=share, corpus=corpus)
    sums_exchanged = {number: program.eval_step(params, batch) for number, batch in exchanged}
    sums, sums_exchanged = jax.device_get((sums, sums_exchanged))

    loss = _loss(sums)
    scores = {"loss": loss, "perplexity": perplexity(loss)}
    if sums_exchanged:
        loss_of_same = _loss([sums[number] for number in sums_exchanged])
        scores["source_gain"] = _loss([*sums_exchanged.values()]) - loss_of_same
    return scores


def doubt(scores: Mapping[str, float], step: int, config: ExperimentConfig) -> str | None:
    """A message for a user whose model still ignores its source after warm-up, else None."""
    gain = scores.get("source_gain", math.nan)
    if not math.isfinite(gain) or gain > _LITTLE or step <= config.training.schedule.warmup_steps:
        return None
    return (
        f"step {step:,}: the model ignores its source so far (source_gain {gain:.3f} nats per "
        "token). If this persists, check that the training files are line-aligned, and try a lower "
        "learning rate or a larger batch"
    )


def _loss(sums: Sequence[LossSums]) -> float:
    return sum(float(batch.nll) for batch in sums) / sum(float(batch.weight) for batch in sums)
