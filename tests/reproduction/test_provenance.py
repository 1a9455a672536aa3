"""What a result says of the code that trained its run."""

from __future__ import annotations

import json

from flaxformer_mt.reproduction.provenance import mixture, training_details
from flaxformer_mt.reproduction.records import read_records
from flaxformer_mt.reproduction.report import report
from flaxformer_mt.reproduction.result_file import Result, read_result
from flaxformer_mt.rundir.layout import RunRecord, Start
from tests.reproduction.made_up import COMMIT, experiment, result, write

OLDER = "f" * 40


def start(commit: str | None, **packages: str) -> Start:
    return Start(
        time="2026-01-01T00:00:00+00:00",
        command_line=("flaxformer-mt", "train"),
        python="3.11.4",
        packages={"jax": "0.10.2", **packages},
        git_commit=commit,
    )


def details(*starts: Start) -> dict[str, str]:
    record = RunRecord(format_version=1, config={}, starts=starts)
    return training_details(record, {"starts": len(starts)}, 8)


def measured(tmp_path, *starts: Start, **changes: object) -> Result:
    content = result(experiment("table3/c_N2"), details=details(*starts)) | changes
    return read_result(write(tmp_path, content))


def test_each_code_that_trained_is_recorded_once():
    found = details(start(COMMIT), start(COMMIT), start(OLDER, jax="0.9.0"))
    assert json.loads(found["trained_by"]) == [
        {"commit": COMMIT, "packages": {"jax": "0.10.2"}},
        {"commit": OLDER, "packages": {"jax": "0.9.0"}},
    ]
    # What earlier starts had is not known, and that is said.
    assert found["device_hours"] == (
        "wall time of 3 starts, times the devices of the process that measured: 8"
    )
    assert "wall time of 1 start," in details(start(COMMIT))["device_hours"]


def test_one_code_for_all_is_no_mixture(tmp_path):
    assert mixture(measured(tmp_path, start(COMMIT), start(COMMIT))) is None
    assert mixture(read_result(write(tmp_path, result(experiment())))) is None  # not recorded
    release = {"flaxformer-mt": "0.1.0"}
    versions = {"jax": "0.10.2", **release}
    same = measured(tmp_path, start(None, **release), commit="release 0.1.0", versions=versions)
    assert mixture(same) is None


def test_other_code_is_named_with_the_packages_that_differ(tmp_path):
    one = measured(tmp_path, start(OLDER), start(COMMIT))
    assert mixture(one) == "trained by ffffffffff, then by 0123456789; measured by 0123456789"
    libraries = measured(tmp_path, start(COMMIT, jax="0.9.0"))
    assert mixture(libraries) == (
        "trained by 0123456789 (jax 0.9.0); measured by 0123456789 (jax 0.10.2)"
    )


def test_the_report_says_where_code_is_mixed(tmp_path):
    found = measured(tmp_path, start(OLDER))
    write(tmp_path, result(experiment("table3/c_N2", seed=2)) | {"commit": OLDER})
    page = report(read_records(tmp_path))
    assert f"- `{found.name}`: trained by ffffffffff; measured by 0123456789" in page
    # Seeds that other commits measured show all of them.
    assert "| NVIDIA H200 | 0123456789, ffffffffff |" in page
    measured(tmp_path, start(COMMIT))
    assert "trained by" not in report(read_records(tmp_path))
