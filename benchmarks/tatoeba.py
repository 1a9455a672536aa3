"""Trains, averages and scores Tatoeba English to German, and records the result.

    python -m benchmarks.tatoeba --data FOLDER --workdir DIR

FOLDER holds `train`, `dev` and `test-tatoeba-v2021-08-07`, each as `.en.xz` and `.de.xz`. Continues
a stopped run; on a finished one it only scores. The test set decides nothing.
"""

import sys
from collections.abc import Sequence

from benchmarks.trained_run import train_and_score

TESTS = [("tatoeba_test_v2021_08_07", "tatoeba")]


def main(arguments: Sequence[str] | None = None) -> int:
    return train_and_score("tatoeba", TESTS, arguments, benchmark="benchmarks.tatoeba")


if __name__ == "__main__":
    sys.exit(main())
