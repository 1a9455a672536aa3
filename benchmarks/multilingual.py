"""One model of six directions against six of one each: Multi30k in English, German and French.

python -m benchmarks.multilingual --data FOLDER --workdir DIR [--config.KEY=VALUE ...]

FOLDER is `data/task1/tok` of the multi30k/dataset repository. Trains the configs `multi30k:en_de`
and so on, `multi30k:many` and `multi30k:many_wide`, averages, and scores test_2016_flickr with the
last checkpoints' mean. Every model reads each of its pairs equally often. Which language an output
is in is decided by py3langid among the three; the references are classified too. Continues what was
stopped. Needs py3langid.
"""

import argparse
import importlib
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.arguments import SETTINGS_HELP, parse_with_settings
from benchmarks.trained_run import trained
from flaxformer_mt.evaluation.evaluate import Evaluation
from flaxformer_mt.reproduction.measuring import TrainingLog, training_details
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import RunDirectory

LANGUAGES = ("en", "de", "fr")
DIRECTIONS = tuple(f"{src}_{tgt}" for src in LANGUAGES for tgt in LANGUAGES if src != tgt)
MANY = {"many": "many", "many_wide": "many_wide"}  # by the name in the result, the variant
TEST = "test_2016_flickr"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multilingual",
        description="Compares one model of six directions with a model of each.",
        epilog=SETTINGS_HELP,
    )
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options, changes = parse_with_settings(parser, arguments)
    language_of = identifier()  # a missing package is told before anything is trained

    settings = {"data.folder": str(options.data), **changes}

    def run(variant: str) -> RunDirectory:
        return trained(
            options.workdir / variant,
            f"multi30k:{variant}",
            settings,
            benchmark="benchmarks.multilingual",
        )

    runs = {name: run(name) for name in (*DIRECTIONS, *MANY)}
    single = {direction: scored(runs[direction])[TEST] for direction in DIRECTIONS}
    scores = {"single": single}
    for name in MANY:
        of_run = scored(runs[name])
        scores[name] = {direction: of_run[f"{TEST}_{direction}"] for direction in DIRECTIONS}

    metrics = bleu_scores(scores)
    for name in MANY:
        metrics[f"right_language_share{name.removeprefix('many')}"] = right_language_share(
            scores[name], language_of
        )
    metrics["reference_language_share"] = statistics.fmean(
        language_of(line) == direction[-2:]
        for direction, evaluation in single.items()
        for (line,) in evaluation.assessment.references
    )
    result = write_result(
        options.result / "multilingual.json",
        command="python -m benchmarks.multilingual --data FOLDER --workdir DIR"
        + "".join(f" --config.{key}={value}" for key, value in changes.items()),
        config="multi30k:many",
        seconds=sum(TrainingLog.read(one).seconds for one in runs.values()),
        metrics=metrics | {f"steps_{name}": steps(runs[name]) for name in ("en_de", *MANY)},
        signatures=signatures(scores),
        details=training_details(*runs.values()),
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def scored(run: RunDirectory) -> dict[str, Evaluation]:
    """All of the run's test sets, translated with its average."""
    return fm.evaluate(run)


def bleu_scores(scores: dict[str, dict[str, Evaluation]]) -> dict[str, float]:
    """BLEU of each model for each direction, its mean over the directions, and what is lost in the
    mean by one model instead of six."""
    metrics: dict[str, float] = {}
    for name, by_direction in scores.items():
        bleu = {direction: one.scores.bleu for direction, one in by_direction.items()}
        metrics |= {f"bleu_{direction}_{name}": score for direction, score in bleu.items()}
        metrics[f"bleu_mean_{name}"] = statistics.fmean(bleu.values())
    for name in MANY:
        lost = metrics["bleu_mean_single"] - metrics[f"bleu_mean_{name}"]
        metrics[f"bleu_lost{name.removeprefix('many')}"] = lost
    return metrics


def signatures(scores: dict[str, dict[str, Evaluation]]) -> dict[str, str]:
    return {
        f"bleu_{direction}_{name}": one.scores.signatures[one.scores.bleu_name]
        for name, by_direction in scores.items()
        for direction, one in by_direction.items()
    }


def right_language_share(scores: dict[str, Evaluation], language_of: Callable[[str], str]) -> float:
    """The share of all outputs that are in the language that their tag asks for."""
    return statistics.fmean(
        language_of(line) == direction[-2:]
        for direction, evaluation in scores.items()
        for line in evaluation.assessment.hypotheses
    )


def steps(run: RunDirectory) -> float:
    return float(fm.load_config(run).training.steps)


def identifier() -> Callable[[str], str]:
    """The language of a line, one of LANGUAGES. Raises SystemExit without py3langid."""
    try:
        py3langid = importlib.import_module("py3langid")
    except ImportError:
        raise SystemExit("py3langid is not installed: pip install py3langid==0.4.0") from None
    py3langid.set_languages([*LANGUAGES])
    return lambda line: str(py3langid.classify(line)[0])


if __name__ == "__main__":
    sys.exit(main())
