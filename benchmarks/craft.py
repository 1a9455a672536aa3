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
from typing import Literal

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.trained_run import trained
from flaxformer_mt.api.trees import linearize_files, rebuild_file, score_files
from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.parsing.evalb import scores_json
from flaxformer_mt.reproduction.measuring import (
    ScoredSet,
    TrainingLog,
    training_details,
    write_measurement,
)
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
        options.workdir / "run", SPEC, {"data.folder": text}, benchmark="benchmarks.craft"
    )
    log = TrainingLog.read(run)
    scores = ScoredSet(
        name="test",
        metrics=parsed(run, text),
        signatures={"f1": "EVALB, COLLINS.prm"},
        hypotheses=read_segments(str(text / "test.out")),
    )
    result = write_measurement(
        RESULTS / "craft.json",
        [scores],
        command="python -m benchmarks.craft --treebank FOLDER --workdir DIR",
        config=SPEC,
        seconds=log.seconds,
        metrics=log.metrics(),
        details=training_details(run),
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
        src, tgt = path.with_suffix(".src"), path.with_suffix(".tgt")
        linearize_files([path], src=src, tgt=tgt, leaves="words")


def parsed(run: RunDirectory, text: Path) -> dict[str, float]:
    """Scores of the test set in percent, and how many outputs weren't trees."""
    source, output = text / "test.src", text / "test.out"
    fm.translate_file(run, source, output, restart=True)
    metrics: dict[str, float] = {}
    forms: dict[Literal["repair", "flat"], str] = {"repair": "", "flat": "unrepaired_"}
    for malformed, prefix in forms.items():
        rebuilt = text / f"test.{malformed}.trees"
        repairs = rebuild_file(source, output, rebuilt, malformed=malformed)
        scores = scores_json(score_files(text / "test.trees", rebuilt))
        metrics |= {f"{prefix}{name}": scores["all"][name] for name in SCORES}
        metrics[f"{prefix}f1_at_most_40_words"] = scores["at_most_40_words"]["f1"]
    for name in ("sentences", "error_sentences", "skipped_sentences"):
        metrics[name] = scores["all"][name]
    return metrics | {"malformed": repairs.malformed}


if __name__ == "__main__":
    sys.exit(main())
