"""Trains the quickstart's model as the paper says and with each deviation, and scores all alike.

python -m benchmarks.deviations --workdir DIR

18 times the quickstart's training, which takes four minutes on two CPU cores. DIR gets a run for
each form and seed; the same command resumes after a stop. The paper's form is trained from several
seeds: their differences are due to chance. Deviations of the search are measured on the same runs.
`--steps N` is for trying the command, with `--output FILE`.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.arguments import parse_with_settings
from benchmarks.deviations.forms import BLEU, PAPER, SEARCHED, STEPS, TRAINED, Searched
from flaxformer_mt.config import freeze
from flaxformer_mt.data.corpus import read_pairs
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.errors import STOPPED
from flaxformer_mt.evaluation.scoring import Scores, Scoring, assess
from flaxformer_mt.reproduction.measuring import training_details
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import RunDirectory, open_run, read_record
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.training.progress import DivergenceError

SEEDS, PAPER_SEEDS = 1, 3
Measured = dict[str, list[float]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deviations")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="the runs' folder")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N", help="of each training")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="of each deviation")
    parser.add_argument(
        "--paper-seeds", type=int, default=PAPER_SEEDS, metavar="N", help="of the paper's"
    )
    names = [form.name for form in TRAINED]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--output", type=Path, default=RESULTS / "deviations.json", metavar="FILE")
    options, overrides = parse_with_settings(parser, arguments)
    if min(options.steps, options.seeds, options.paper_seeds) < 1:
        parser.error("--steps, --seeds and --paper-seeds are at least 1")

    start = time.perf_counter()
    trainings: dict[str, tuple[Mapping[str, object], int]] = {PAPER: ({}, options.paper_seeds)}
    for form in TRAINED:
        if form.name in options.only:
            trainings[form.name] = (form.settings, options.seeds)
    scores: Measured = {}
    runs: list[RunDirectory] = []
    signatures: dict[str, str] = {}
    hypotheses: dict[str, list[str]] = {}
    for name, (settings, seeds) in trainings.items():
        for seed in range(1, seeds + 1):
            workdir = Path(options.workdir) / f"{name}-{seed}"
            runs.append(RunDirectory(workdir))
            try:
                is_finished = trained(workdir, options.steps, seed, {**settings, **overrides})
            except DivergenceError as error:
                print(f"{workdir}: {error}", file=sys.stderr)
                scores.setdefault(f"{name}_diverged", []).append(1)
                continue
            if not is_finished:
                return STOPPED
            for metric, score in measured(workdir, name, signatures, hypotheses):
                scores.setdefault(metric, []).append(score)
            print(json.dumps(scores, indent=2), file=sys.stderr)

    write_result(
        options.output,
        command=" ".join(["python -m benchmarks.deviations --workdir DIR", *typed(options)]),
        config="quickstart",
        seconds=time.perf_counter() - start,
        metrics=summary(scores, options.steps, options.paper_seeds, options.seeds),
        signatures=signatures,
        details=training_details(*runs),
        hypotheses=hypotheses,
    )
    return 0


def trained(workdir: Path, steps: int, seed: int, settings: Mapping[str, object]) -> bool:
    """Trains or resumes a form, and averages; False if it was stopped. Raises DivergenceError."""
    common = {
        "training.seed": seed,
        "training.steps": steps,
        "training.save_every": max(1, steps // 32),  # at the full number the quickstart's 40
        "training.validate_every": 0,
        "training.validate_bleu": False,
        "training.best_metric": "loss",
    }
    config = fm.load_config("quickstart", {**common, **settings})
    status = fm.train(config, workdir, command=["benchmarks.deviations", workdir.name])
    if status.state == "stopped":
        return False
    fm.average(workdir)
    return True


def measured(
    workdir: Path, name: str, signatures: dict[str, str], hypotheses: dict[str, list[str]]
) -> Iterator[tuple[str, float]]:
    """Metrics of one run; of the paper's form also those by other rules of search and of BLEU.

    Adds to `signatures` by metric, and to `hypotheses` by run and search.
    """
    run = open_run(workdir)
    reports = [line for line in read_metrics(run.metrics) if line["kind"] == "valid"]
    yield f"{name}_perplexity", reports[-1]["perplexity"]
    scores, hypotheses[workdir.name] = translated(run)
    yield f"{name}_{BLEU}", scores.bleu
    signatures[f"{name}_{BLEU}"] = scores.signatures[BLEU]
    if name != PAPER:
        return
    for metric in ("bleu_paper", "chrf"):
        yield f"{PAPER}_{metric}", scores.metrics[metric]
        signatures[f"{PAPER}_{metric}"] = scores.signatures[metric]
    for search in SEARCHED:
        search_scores, hypotheses[f"{workdir.name}-{search.name}"] = translated(run, search)
        yield f"{search.name}_{BLEU}", search_scores.bleu
        signatures[f"{search.name}_{BLEU}"] = scores.signatures[BLEU]


def translated(run: RunDirectory, search: Searched | None = None) -> tuple[Scores, list[str]]:
    """Scores on the run's test set, and the outputs."""
    data = freeze(read_record(run).config, str(run.config_file)).data
    (corpus,) = data.test
    pairs = list(read_pairs(corpus, data.folder, key=f"data.test.{corpus.name}"))
    averaged = search is None or search.averaged
    translator = Translator.load(run.path, which="average" if averaged else "latest")
    if search is not None:
        settings = dataclasses.replace(translator.config, **dict(search.settings))  # type: ignore[arg-type]
        translator = translator.with_config(**dataclasses.asdict(settings))
    translations = translator.translate([pair.src for pair in pairs])
    hypotheses = [translation.text for translation in translations]
    scoring = Scoring(language=data.tgt_lang, ter=False, resamples=0)
    assessment = assess(hypotheses, [pair.tgt for pair in pairs], scoring=scoring)
    return assessment.scores, hypotheses


def summary(scores: Measured, steps: int, paper_seeds: int, seeds: int) -> dict[str, float]:
    """Means over the seeds scored, the lowest and the highest of the paper's form, and counts.

    `FORM_seeds_scored` counts the seeds in a mean, and `FORM_diverged` those that aren't.
    """
    metrics: dict[str, float] = {}
    paper_scores = scores.get(f"{PAPER}_{BLEU}")
    if paper_scores:
        metrics[f"{PAPER}_{BLEU}"] = statistics.fmean(paper_scores)
        metrics[f"{PAPER}_{BLEU}_lowest"] = min(paper_scores)
        metrics[f"{PAPER}_{BLEU}_highest"] = max(paper_scores)
    metrics |= {"paper_seeds": paper_seeds, "seeds": seeds, "steps": steps}
    for name, by_seed in scores.items():
        if not name.endswith("_diverged"):
            metrics.setdefault(name, statistics.fmean(by_seed))
    for name in (PAPER, *(form.name for form in TRAINED)):
        scored, diverged = scores.get(f"{name}_{BLEU}", []), scores.get(f"{name}_diverged", [])
        if scored or diverged:
            metrics[f"{name}_seeds_scored"] = len(scored)
        if diverged:
            metrics[f"{name}_diverged"] = len(diverged)
    return metrics


def typed(options: argparse.Namespace) -> Iterator[str]:
    """The options that differ from those of the whole measurement."""
    for name, number, default in (
        ("--steps", options.steps, STEPS),
        ("--seeds", options.seeds, SEEDS),
        ("--paper-seeds", options.paper_seeds, PAPER_SEEDS),
    ):
        if number != default:
            yield f"{name} {number}"
    if len(options.only) < len(TRAINED):
        yield f"--only {' '.join(options.only)}"


if __name__ == "__main__":
    sys.exit(main())
