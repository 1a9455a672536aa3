"""What a result says of the training behind it."""

import dataclasses
import json
import lzma

import pytest

from benchmarks.readme_tables import render_section
from flaxformer_mt.reproduction.measuring import TrainingLog, measure_evaluated, training_details
from flaxformer_mt.reproduction.result_file import read_result
from flaxformer_mt.rundir.layout import FORMAT_VERSION, RunDirectory, RunRecord, Start

TRAINED, SCORED = "1" * 40, "2" * 40


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that other code trained, in two starts, than there is now to score it."""
    directory = RunDirectory(tmp_path / "run")
    directory.evaluation.mkdir(parents=True)
    code = {"command_line": ("train",), "python": "3.12.0", "packages": {}, "git_commit": TRAINED}
    starts = tuple(Start(time=f"2026-01-0{day}T00:00:00", **code) for day in (1, 2))
    record = RunRecord(format_version=FORMAT_VERSION, config={}, starts=starts)
    directory.config_file.write_text(json.dumps(dataclasses.asdict(record)))
    reports = [
        {"kind": "train", "step": step, "tgt_tokens_per_second": rate, "data_wait": wait}
        for step, rate, wait in ((1, 10.0, 0.5), (2, 30.0, 0.1), (3, 20.0, 0.2))
    ]
    reports += [
        {"kind": "valid", "step": step, "perplexity": perplexity, "training_seconds": 2.5 * step}
        for step, perplexity in ((2, 4.0), (3, 4.5))
    ]
    directory.metrics.write_text("".join(json.dumps(line) + "\n" for line in reports))
    for name in ("test", "valid"):
        scores = {"metrics": {"chrf": 50.0}, "signatures": {"chrf": "nc:6"}}
        (directory.evaluation / f"{name}.json").write_text(json.dumps(scores))
        (directory.evaluation / f"{name}.hyp.txt").write_text(f"scored on {name}\n")
    monkeypatch.setattr("flaxformer_mt.reproduction.result_file.git_commit", lambda: SCORED)
    monkeypatch.setattr("flaxformer_mt.reproduction.result_file.package_versions", dict)
    return directory


def test_a_result_names_the_code_that_trained_its_run(run):
    path = run.path.parent / "some.json"
    measure_evaluated(run, path, command="python", config="quickstart", test="test")
    result = read_result(path)
    assert result.commit == SCORED
    assert json.loads(result.details["trained_by"]) == [{"commit": TRAINED, "packages": {}}]
    assert (
        "\nTrained by 1111111111; measured by 2222222222. Training: 2 starts, 2026-01-01T00:00:00 "
        "to 2026-01-02T00:00:00; the machine is that of the process that scored.\n"
    ) in render_section(result)
    for name in ("test", "valid"):
        outputs = lzma.decompress((run.path.parent / f"some.{name}.hyp.xz").read_bytes())
        assert outputs.decode() == f"scored on {name}\n"
    numbers = {"valid_perplexity": 4.0, "steps": 3, "target_tokens_per_second": 20.0}
    assert result.metrics.items() >= (numbers | {"data_wait": 0.2}).items()
    assert result.seconds == 7.5


def test_code_that_trained_several_runs_is_named_once(run):
    details = training_details(run, run)
    assert len(json.loads(details["trained_by"])) == 1
    assert details["training"].startswith("4 starts, 2026-01-01T00:00:00 to 2026-01-02T00:00:00; ")


def test_a_run_that_was_stopped_soon_has_no_figures_of_its_training(run):
    run.metrics.unlink()
    assert TrainingLog.read(run).metrics() == {}
