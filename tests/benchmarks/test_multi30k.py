"""What a result says of the training behind it, and of several seeds."""

import dataclasses
import json
import lzma

import pytest

from benchmarks import trained_run
from benchmarks.multi30k import write_seeds
from benchmarks.readme_tables import render_section
from flaxformer_mt.reproduction.result_file import read_result, write_result
from flaxformer_mt.rundir.layout import FORMAT_VERSION, RunDirectory, RunRecord, Start
from tests.reproduction.made_up import MACHINE

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
    monkeypatch.setattr(trained_run, "RESULTS", tmp_path)
    return directory


def test_a_result_names_the_code_that_trained_its_run(run):
    path = run.path.parent / "some.json"
    trained_run.record(run, path, command="python", config="quickstart", test="test")
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
    details = trained_run.training_details(run, run)
    assert len(json.loads(details["trained_by"])) == 1
    assert details["training"].startswith("4 starts, 2026-01-01T00:00:00 to 2026-01-02T00:00:00; ")


def recorded(folder, name, bleu, *, seconds=60.0, command="python -m benchmarks.multi30k"):
    write_result(
        folder / f"{name}.json",
        command=command,
        config="multi30k:tiny",
        seconds=seconds,
        metrics={"bleu_tokenized_lc": bleu, "chrf": 66.0, "steps": 16_000},
        signatures={"bleu_tokenized_lc": "nrefs:1|tok:none"},
        machine=MACHINE,
    )


def test_several_seeds_have_a_mean_and_a_spread(tmp_path):
    recorded(tmp_path, "multi30k_tiny", 40.0, command="first")
    recorded(tmp_path, "multi30k_tiny_bfloat16", 50.0)
    write_seeds("multi30k_tiny", "multi30k:tiny", tmp_path)
    assert not (tmp_path / "multi30k_tiny_seeds.json").exists(), "one seed has no spread"

    # A seed counts once, and 1 is the config's own.
    recorded(tmp_path, "multi30k_tiny_seed_1", 60.0)
    recorded(tmp_path, "multi30k_tiny_seed_2", 41.0, command="second")
    recorded(tmp_path, "multi30k_tiny_seed_2_bfloat16", 50.0)
    recorded(tmp_path, "multi30k_tiny_seed_13_bfloat16", 42.0, command="third")

    # Other weights or another search than these three:
    for name in ("gnmt_1_6", "seed_2_gnmt_1_6", "raw"):
        recorded(tmp_path, f"multi30k_tiny_{name}", 10.0)
    for _ in range(2):  # its own result is none of them
        write_seeds("multi30k_tiny", "multi30k:tiny", tmp_path)
    result = read_result(tmp_path / "multi30k_tiny_seeds.json")
    bleu = {"": 41.0, "_lowest": 40.0, "_highest": 42.0, "_deviation": 1.0}
    for end, value in bleu.items():
        assert result.metrics[f"bleu_tokenized_lc{end}"] == pytest.approx(value)
    assert result.metrics["seeds"] == 3 and result.seconds == 180.0
    assert "sacrebleu_13a" not in result.metrics and "steps" not in result.metrics
    assert sorted(result.command.split("; ")) == ["first", "second", "third"]
    assert result.signatures == {"bleu_tokenized_lc": "nrefs:1|tok:none"}
    left_out = {name: text for name, text in result.details.items() if text.startswith("left out")}
    assert left_out == {
        "multi30k_tiny_bfloat16": "left out: seed 1 counts once, by multi30k_tiny",
        "multi30k_tiny_seed_1": "left out: seed 1 counts once, by multi30k_tiny",
        "multi30k_tiny_seed_2_bfloat16": "left out: seed 2 counts once, by multi30k_tiny_seed_2",
    }
