"""Where benchmarks keep their results: `benchmarks/results/NAME.json`, in the package's form."""

from __future__ import annotations

from pathlib import Path

from flaxformer_mt.reproduction.result_file import (
    Machine as Machine,
    Result as Result,
    ResultError as ResultError,
    read_results as read_folder,
    this_machine as this_machine,
    write_result as write_result,
)

RESULTS = Path(__file__).parent / "results"


def read_results(folder: Path = RESULTS) -> list[Result]:
    """All results of a folder, by name. Raises ResultError."""
    return read_folder(folder)
