"""The rows of planned steps: of several compilers, from this call's folder and from the record."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import RESULTS
from benchmarks.plan import CASES, case_of, compiler_of, record_of, row_name
from flaxformer_mt.reproduction.result_file import read_result


def report(milliseconds: float) -> dict[str, Any]:
    """What `plan --json` prints, as far as it is recorded, of a step that takes so long."""
    seconds = milliseconds / 1000
    figures = ("compute_peak_share", "peak_share", "unoverlapped_peak_share")
    return {
        **dict.fromkeys(figures, 0.5),
        "fits": True,
        "needed_bytes": 2**30,
        "replications": [],
        "compute": {"seconds": seconds},
        "exposed": {"most": 0.0, "least": 0.0},
        "step_seconds": seconds,
        "least_step_seconds": seconds,
        "unoverlapped_step_seconds": seconds,
        "collective_bytes": 1.0,
        "expected_collective_bytes": 1.0,
        "compile_seconds": 60.0,
    }


def keep(folder: Path, name: str, milliseconds: float) -> None:
    content = {"commit": "a" * 40, "values": report(milliseconds)}
    (folder / f"{name}.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("version", "suffix"), [("0.0.42.1", ""), ("0.0.50.1", "_libtpu_0_0_50_1")]
)
@pytest.mark.parametrize("case", ["base_v5e_8", "big_v5e_8_bfloat16"])
def test_a_rows_name_has_its_case_and_compiler(case, version, suffix):
    name = row_name(case, version)
    assert name == case + suffix
    assert (case_of(name), compiler_of(name)) == (case, version)


def test_rows_of_two_compilers_stand_side_by_side_and_earlier_ones_stay(tmp_path):
    newer = row_name("base_v5e_8", "0.0.50.1")
    keep(tmp_path, "base_v5e_8", 20.0)
    keep(tmp_path, newer, 19.0)
    keep(tmp_path, "not_a_case", 1.0)
    recorded = read_result(RESULTS / "plan.json")
    record = record_of(tmp_path, recorded)
    assert record.metrics["base_v5e_8_step_ms"] == pytest.approx(20.0)
    assert record.metrics[f"{newer}_step_ms"] == pytest.approx(19.0)
    big = "big_v5e_8_step_ms"
    assert record.metrics[big] == recorded.metrics[big]
    assert record.seconds == 120 and not any("not_a_case" in name for name in record.metrics)
    assert f"libtpu 0.0.50.1: {newer}" in record.compilers()


def test_a_record_that_counts_no_overlap_is_left_out(tmp_path):
    recorded = read_result(RESULTS / "plan.json")
    metrics = {key: value for key, value in recorded.metrics.items() if "exposed" not in key}
    record = record_of(tmp_path, dataclasses.replace(recorded, metrics=metrics))
    assert record.metrics == {} and record.commits == {}
    assert {case_of(name) for name in record_of(tmp_path, recorded).commits} <= CASES.keys()
