"""Trains and scores a parser on a treebank of bracketed trees, CRAFT's, and records its F1.

    python -m benchmarks.craft --treebank FOLDER --workdir DIR

FOLDER holds `train.trees.xz` and `dev.trees.xz`. The last thousand training trees, of articles of
their own, are what choices are made on; `dev` is parsed once, by the mean of the last checkpoints.
F1 is EVALB's with COLLINS.prm (docs/parsing.md), once with malformed outputs repaired and once with
none repaired. Continues a stopped run.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from benchmarks.trained_run import seconds_trained, trained, training_details, training_metrics
from flaxformer_mt.cli import translate, trees
from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import RunDirectory

SPEC = "parsing:craft"
VALID = 1000
SCORES = ("f1", "precision", "recall", "exact_match")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.craft")
    parser.add_argument("--treebank", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    text = options.workdir / "text"
    linearized(options.treebank, text)
    run = trained(
        options.workdir / "run", SPEC, [f"data.folder={text}"], benchmark="benchmarks.craft"
    )
    result = write_result(
        RESULTS / "craft.json",
        command="python -m benchmarks.craft --treebank FOLDER --workdir DIR",
        config=SPEC,
        seconds=seconds_trained(run),
        metrics={**parsed(run, text), **training_metrics(run)},
        signatures={"f1": "EVALB, COLLINS.prm"},
        details=training_details(run),
        hypotheses={"test": read_segments(str(text / "test.out"))},
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def linearized(treebank: Path, text: Path, *, valid: int = VALID) -> None:
    """`train`, `valid` and `test` in `text`, each as trees, sentences and linearised trees."""
    text.mkdir(parents=True, exist_ok=True)
    train = lzma.open(treebank / "train.trees.xz", "rt", encoding="utf-8").readlines()
    test = lzma.open(treebank / "dev.trees.xz", "rt", encoding="utf-8").readlines()
    for name, lines in {"train": train[:-valid], "valid": train[-valid:], "test": test}.items():
        path = text / f"{name}.trees"
        path.write_text("".join(lines), encoding="utf-8")
        outputs = ["--output-src", str(path.with_suffix(".src"))]
        outputs += ["--output-tgt", str(path.with_suffix(".tgt"))]
        trees.main(["linearize", str(path), *outputs, "--leaves", "words"], "trees", "")


def parsed(run: RunDirectory, text: Path) -> dict[str, float]:
    """Scores of the test set in percent, and how many outputs weren't trees."""
    source, output = text / "test.src", text / "test.out"
    output.unlink(missing_ok=True)
    translate.main(
        ["--workdir", str(run), "--input", str(source), "--output", str(output)], "translate", ""
    )
    metrics: dict[str, float] = {}
    for malformed, prefix in (("repair", ""), ("flat", "unrepaired_")):
        rebuilt, counts = text / f"test.{malformed}.trees", text / f"repairs.{malformed}.json"
        outputs = ["--output", str(rebuilt), "--json", str(counts)]
        trees.main(
            ["rebuild", str(source), str(output), *outputs, "--malformed", malformed], "trees", ""
        )
        path = text / f"scores.{malformed}.json"
        files = [str(text / "test.trees"), str(rebuilt)]
        trees.main(["score", *files, "--output", str(path)], "trees", "")
        scores = _read(path)
        metrics |= {f"{prefix}{name}": scores["all"][name] for name in SCORES}
        metrics[f"{prefix}f1_at_most_40_words"] = scores["at_most_40_words"]["f1"]
    for name in ("sentences", "error_sentences", "skipped_sentences"):
        metrics[name] = scores["all"][name]
    return metrics | {"malformed": _read(counts)["malformed_sentences"]}


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
