"""Trains, averages and scores Tatoeba English to German, and records the result.

    python -m benchmarks.tatoeba --data FOLDER --workdir DIR

FOLDER holds `train`, `dev` and `test-tatoeba-v2021-08-07`, each as `.en.xz` and `.de.xz`. Continues
a stopped run; on a finished one it only scores. The test set decides nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from benchmarks.trained_run import record, trained
from flaxformer_mt.cli import evaluate

SPEC, TEST = "tatoeba", "tatoeba_test_v2021_08_07"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tatoeba")
    parser.add_argument("--data", required=True, metavar="FOLDER", help="the corpus")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="run directory")
    options = parser.parse_args(arguments)
    overrides = [f"data.folder={options.data}"]
    run = trained(options.workdir, SPEC, overrides, benchmark="benchmarks.tatoeba")
    how = ["--workdir", str(run)]
    evaluate.main([*how, "--set", "valid"], "evaluate", "")
    evaluate.main([*how, "--set", TEST, "--folder", options.data], "evaluate", "")
    result = record(
        run,
        name="tatoeba",
        command="python -m benchmarks.tatoeba --data FOLDER --workdir DIR",
        config=SPEC,
        test=TEST,
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
