"""Trains, averages and scores Multi30k English to German, and records the result.

python -m benchmarks.multi30k --data FOLDER --variant tiny --workdir runs/multi30k-tiny

FOLDER is `data/task1/tok` (variant `tiny`) or `data/task1/raw` (`tiny_raw`) of the multi30k/dataset
repository. Continues a stopped run; on a finished one it only scores. Everything is chosen on the
validation set; the test set is scored once, and what it gave is recorded. `--penalty` scores the
same weights by another rule of search into a result of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence

from benchmarks.trained_run import record, trained
from flaxformer_mt.cli import evaluate

TEST = "test_2016_flickr"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.multi30k")
    parser.add_argument("--data", required=True, metavar="FOLDER", help="the corpus")
    parser.add_argument("--variant", default="tiny", choices=("tiny", "tiny_raw"))
    parser.add_argument("--workdir", required=True, metavar="DIR", help="run directory")
    parser.add_argument(
        "--penalty",
        metavar="NORM:ALPHA",
        type=_penalty,
        default=(None, None),
        help="in place of the config's decoding.length_norm and .length_penalty, such as gnmt:1.6",
    )
    options = parser.parse_args(arguments)
    norm, alpha = options.penalty
    spec = f"multi30k:{options.variant}"
    overrides = [f"data.folder={options.data}"]
    run = trained(options.workdir, spec, overrides, benchmark="benchmarks.multi30k")
    how = ["--workdir", str(run)]
    name = f"multi30k_{options.variant}"
    command = (
        f"python -m benchmarks.multi30k --data FOLDER --variant {options.variant} --workdir DIR"
    )
    if norm is not None:
        how += ["--length-norm", norm, "--length-penalty", alpha]
        name += f"_{norm}_{alpha.replace('.', '_')}"
        command += f" --penalty {norm}:{alpha}"
    evaluate.main([*how, "--set", "valid"], "evaluate", "")
    evaluate.main([*how, "--set", TEST, "--folder", options.data], "evaluate", "")
    result = record(
        run,
        name=name,
        command=command,
        config=spec,
        test=TEST,
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def _penalty(text: str) -> tuple[str, str]:
    """The two parts of NORM:ALPHA."""
    norm, _, alpha = text.partition(":")
    if norm not in ("gnmt", "average") or not re.fullmatch(r"\d+(\.\d+)?", alpha):
        raise argparse.ArgumentTypeError(f"{text!r}: write gnmt:1.6 or average:1.0")
    return norm, alpha


if __name__ == "__main__":
    sys.exit(main())
