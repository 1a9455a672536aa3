"""The table of contestants says of each what it did, and of all who took part."""

from __future__ import annotations

import dataclasses

from benchmarks.readme_tables import render_table
from benchmarks.result_file import Machine, Result
from benchmarks.speed_table import NAMES, render
from benchmarks.training_speed import CONTESTANTS


def contest(name: str, metrics: dict[str, float]) -> Result:
    return Result(
        name=f"training_speed_{name}",
        command="python -m benchmarks.training_speed",
        config="multi30k:tiny",
        commit="0" * 40,
        machine=Machine(cores=2, memory_gib=24.0, accelerator="none"),
        versions={},
        seconds=60.0,
        metrics=metrics,
        signatures={},
    )


def rate(key: str, middle: float) -> dict[str, float]:
    name = f"{key}_tokens_per_second"
    return {name: middle, f"{name}_lowest": middle - 10, f"{name}_highest": middle + 1000}


TINY = contest("tiny", {**rate("tiny_ours", 12_345.6), "tiny_eole_failed": 1})
BASE = contest(
    "paper_base_gpu",
    {
        **rate("paper_base_ours", 600),
        **rate("paper_base_joeynmt", 500),
        "ceiling_jax_float32_gflops": 441.5,
    },
)


def test_a_row_a_contestant_and_a_column_a_workload():
    head, _, *rows = render([TINY, BASE]).splitlines()
    assert "[tiny](docs/results.md#training_speed_tiny)" in head
    assert "[paper_base_gpu](docs/results.md#training_speed_paper_base_gpu)" in head
    cells = {row.split(" | ")[0]: row.split(" | ")[1:] for row in rows}
    assert cells["| **flaxformer_mt**, float32"] == [
        "12,346 (12,336 to 13,346)",
        "600 (590 to 1,600) |",
    ]
    assert cells["| eole, float32"] == ["could not run", "– |"]
    assert cells["| JoeyNMT, float32"] == ["–", "500 (490 to 1,500) |"]
    assert len(cells) == 5, "three contestants, the ceiling and the machine"
    assert rows[-2].endswith("| – | 442 |")
    assert rows[-1].endswith(" | 2 CPU cores, 24 GiB, 60.0 s | 2 CPU cores, 24 GiB, 60.0 s |")


def test_all_contestants_have_a_name():
    assert set(NAMES) == set(CONTESTANTS)


def test_the_readme_has_them_in_a_table_of_their_own():
    assert render_table([TINY, BASE]) == render([TINY, BASE])
    other = dataclasses.replace(TINY, name="tiny", metrics={"chrf": 50.0})
    first, second = render_table([TINY, other, BASE]).split("\n\n")
    assert second == render([TINY, BASE])
    assert "`tiny`" in first and "training_speed" not in first
    assert render([]) == ""
