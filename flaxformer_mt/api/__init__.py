"""The Python API (`import flaxformer_mt`), which the commands also use."""

import sys

from flaxformer_mt.config import ExperimentConfig, freeze
from flaxformer_mt.rundir.layout import RunDirectory, read_record
from flaxformer_mt.rundir.paths import is_primary


def config_of(run: RunDirectory) -> ExperimentConfig:
    return freeze(read_record(run).config, str(run.config_file))


def say(text: str) -> None:
    """Prints a line for people, from the first of several processes; stdout is for results."""
    if is_primary():
        print(text, file=sys.stderr, flush=True)
