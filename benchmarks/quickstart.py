"""Runs the quickstart in a fresh directory and records its score and its time.

python -m benchmarks.quickstart --workdir runs/quickstart-measured
"""

import argparse
import json
import sys
from collections.abc import Sequence

from benchmarks import RESULTS
from benchmarks.trained_run import evaluated, trained
from flaxformer_mt.reproduction.measuring import measure_evaluated


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quickstart")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="run directory, new")
    options = parser.parse_args(arguments)
    run = trained(options.workdir, "quickstart", {}, benchmark="benchmarks.quickstart")
    for name in ("grammar", "valid"):
        evaluated(run, name)
    result = measure_evaluated(
        run,
        RESULTS / "quickstart.json",
        command="python -m benchmarks.quickstart --workdir DIR",
        config="quickstart",
        test="grammar",
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
