"""Trains, averages and scores the paper's base model on half a million pairs of Europarl, for GPUs.

    python -m benchmarks.europarl --data FOLDER --workdir DIR

FOLDER is as in configs/europarl.py. Continues a stopped run; on a finished one it only scores, on
Europarl's own test set and on those of WMT 2013 and 2014.
"""

import sys
from collections.abc import Sequence

from benchmarks.trained_run import train_and_score

TESTS = [
    ("newstest2013", "europarl_newstest2013"),
    ("newstest2014", "europarl_newstest2014"),
    ("europarl", "europarl"),
]


def main(arguments: Sequence[str] | None = None) -> int:
    return train_and_score("europarl", TESTS, arguments, benchmark="benchmarks.europarl")


if __name__ == "__main__":
    sys.exit(main())
