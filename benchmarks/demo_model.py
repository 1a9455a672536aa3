"""Trains the model that comes with the package, scores it, and writes the package's files.

    python -m benchmarks.demo_model --data FOLDER --workdir DIR

FOLDER is that of `benchmarks.tatoeba`. Continues a stopped run; on a finished one it only scores
and writes. The test set decides nothing.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks.trained_run import train_and_score
from flaxformer_mt.api import config_of
from flaxformer_mt.config import to_dict
from flaxformer_mt.demo import package
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.weights import load_params

SPEC = "tatoeba:demo"
TESTS = [("tatoeba_test_v2021_08_07", "demo_model")]


def main(arguments: Sequence[str] | None = None) -> int:
    return train_and_score(
        SPEC, TESTS, arguments, benchmark="benchmarks.demo_model", afterwards=write_package
    )


def write_package(run: RunDirectory) -> None:
    """Writes the model of `run` into the package, searched as `translate` would by default."""
    translator = fm.Translator.load(run)
    config = config_of(run)
    decoding = dataclasses.replace(translator.config, length_choice="given")
    data = dataclasses.replace(config.data, folder="data/tatoeba")
    if translator.training_text is None:
        raise ValueError(f"{run}: has no manifest of training text")
    package.write(
        Path(package.__file__).parent,
        to_dict(dataclasses.replace(config, decoding=decoding, data=data)),
        translator.vocabularies,
        load_params(run, "average"),
        translator.training_text,
    )


if __name__ == "__main__":
    sys.exit(main())
