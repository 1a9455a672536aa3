"""Chooses how outputs' lengths are normalised, for runs that leave it to validation text."""

from __future__ import annotations

from collections.abc import Sequence

from flaxformer_mt.api import say
from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.config.tokenizers import validation_tokenizer
from flaxformer_mt.data.prepare.make import valid_sets
from flaxformer_mt.decoding.errors import DecodingError
from flaxformer_mt.decoding.length_choice import (
    FEWEST,
    PAPER,
    CandidateScores,
    LengthNorm,
    choose,
    is_to_be_chosen,
)
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.metrics import Chrf
from flaxformer_mt.evaluation.scoring import measure, named_bleu
from flaxformer_mt.evaluation.significance import paired_bootstrap
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import exists


def choose_length(run: RunDirectory, config: ExperimentConfig) -> None:
    """Compares candidates with the weights that `translate` would use, and saves the best.

    Only if the run's settings, `config`, ask for it. Says what was chosen. Raises what
    `Translator.load` and reading the validation text raise.
    """
    if not is_to_be_chosen(config.decoding) or not exists(run.data):
        return
    sets = valid_sets(local_copy(run.data))
    if len(sets) > 1:
        say(f"search: keeps {PAPER}; it is chosen on one validation set, and there are {len(sets)}")
        return
    ((sources, references),) = sets.values()
    if len(sources) < FEWEST:
        say(
            f"search: keeps {PAPER}; choosing needs {FEWEST} validation pairs, and there are "
            f"{len(sources):,}"
        )
        return

    if exists(run.length_choice):
        run.length_choice.unlink()  # an earlier choice, maybe damaged, must not matter
    say(f"search: choosing how lengths are normalised on {len(sources):,} validation pairs...")
    translator = Translator.load(run)

    def translate(norm: LengthNorm, lines: Sequence[str]) -> list[str]:
        settings = {"length_norm": norm.length_norm, "length_penalty": norm.length_penalty}
        searching = translator.with_config(**settings)
        return [line.text for line in searching.translate_lines(lines, warn=False)]

    def assess(outputs: Sequence[Sequence[str]], targets: Sequence[str]) -> list[CandidateScores]:
        return _assessed(outputs, targets, tokenizer=validation_tokenizer(config.data))

    try:
        choice = choose(translate, assess, sources, references, weights=translator.name)
    except DecodingError as error:  # training has diverged: it is finished, all the same
        say(f"search: keeps {PAPER}: with {translator.name}, {error}")
        return
    choice.save(run)
    say(f"search: {choice.describe()}")


def _assessed(
    outputs: Sequence[Sequence[str]], references: Sequence[str], *, tokenizer: str
) -> list[CandidateScores]:
    """The scores of each of `outputs`, of which the first is the paper's."""
    bleu = named_bleu(references, tokenizer=tokenizer, lowercase=False)
    measured = [measure([bleu, Chrf()], hypotheses, references) for hypotheses in outputs]
    papers = measured[0][:1]
    scores = []
    for of_bleu, of_chrf in measured:
        (outcome,) = paired_bootstrap(papers, [of_bleu])
        scores.append(CandidateScores(of_bleu.score, of_chrf.score, outcome.better or 0.0))
    return scores
