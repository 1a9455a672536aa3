"""`doctor`, `train --dry-run`, `--profile-steps`, MFU and goodput as a user runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flaxformer_mt.rundir.metrics_log import read_metrics
from tests.system.conftest import ROOT, Run, tiny


@pytest.fixture(scope="module")
def dry(command: Run, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory in which nothing was trained yet."""
    workdir = tmp_path_factory.mktemp("dry") / "run"
    done = command("train", *tiny(corpus), "--workdir", workdir, "--dry-run")
    assert done.returncode == 0, done.stderr
    (workdir.parent / "said.txt").write_text(done.stdout)
    return workdir


def test_dry_run_says_memory_time_and_end_and_makes_no_run(dry: Path) -> None:
    said = (dry.parent / "said.txt").read_text()
    for pattern in (
        r"^longest of 2 shapes +\d+ rows of \d+ \+ \d+ positions$",
        r"^compiled in +[\d.]+ s$",
        r"^memory of a device +state and batch \d+ MiB, temporary \d+ MiB",
        r"^one step +[\d,]+ ms, the best of 3$",
        r"^positions +[\d,]+ source \+ [\d,]+ target a second$",
        r"^mfu +[\d.]+% of measured float32 product$",
        r"^20 steps +\d+:\d\d:\d\d if all had this shape",
    ):
        assert re.search(pattern, said, re.MULTILINE), (pattern, said)
    assert {path.name for path in dry.iterdir()} == {"data", "vocabulary", "lock"}


def test_after_a_dry_run_settings_are_free_and_the_run_is_observed(
    command: Run, corpus: Path, dry: Path
) -> None:
    changed = [*tiny(corpus), "--config.model.d_ff=48", "--workdir", dry]
    done = command("train", *changed, "--profile-steps", "12:14")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^step .* · mfu [\d.]+% · ETA", done.stderr, re.MULTILINE)) == 4
    assert "trace of steps 12 to 14 written" in done.stderr
    (trace,) = (dry / "profile").glob("plugins/profile/*/*.xplane.pb")
    assert trace.stat().st_size > 1000
    assert re.search(r"^goodput [\d.]+% of 0:\d\d:\d\d in 1 start$", done.stderr, re.MULTILINE)
    account = json.loads((dry / "goodput.json").read_text())
    assert sum(account["seconds"].values()) == pytest.approx(account["wall_seconds"])
    assert account["seconds"]["lost"] == 0
    for line in read_metrics(dry / "metrics.jsonl"):
        if line["kind"] == "train":
            assert 0 < line["mfu"] < 1
            assert 0 < line["goodput"] < 1
    # The same account goes on with the next start.
    done = command("train", *changed, "--config.training.steps=25")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^goodput [\d.]+% of 0:\d\d:\d\d in 2 starts$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("5-9", "'5-9': write A:B"),
        ("3:9", "steps 3 to 9 cannot be traced: this run goes on after step 20"),
        ("22:99", "steps 22 to 99 cannot be traced: training ends at step 30"),
    ],
)
def test_steps_that_cannot_be_traced_are_an_error(
    command: Run, trained: Path, steps: str, message: str, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", trained, copy], check=True)
    done = command(
        *("train", "--workdir", copy, "--config.training.steps=30", "--profile-steps", steps)
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_finds_this_machine_well(command: Run, tmp_path: Path) -> None:
    done = command("doctor", "--workdir", tmp_path, "--config", "quickstart", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert {"versions", "devices", "step float32", "step bfloat16", "collective"} <= found.keys()
    assert {"product", "checkpoint", "space", "cache", "config"} <= found.keys()
    assert all(finding["state"] != "FAIL" for finding in found.values())
    assert found["step float32"]["values"]["difference"] == 0
    assert not list(tmp_path.iterdir())


def test_doctor_names_what_is_wrong_and_fails(tmp_path: Path) -> None:
    """On eight devices, with a place that is a file and a mesh that they do not make."""
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "flaxformer_mt.cli.main", "doctor"),
            *("--workdir", str(tmp_path / "file" / "runs")),
            *("--config", "quickstart", "--config.mesh.fsdp=3"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "8"},
        timeout=400,
    )
    assert done.returncode == 2, done.stderr
    states = {line[5:20].strip(): line[:5].strip() for line in done.stdout.splitlines()}
    assert states["checkpoint"] == states["config"] == "FAIL"
    assert states["collective"] == states["step float32"] == "ok"
    assert "a sum over 8 devices" in done.stdout
    assert "2 failed" in done.stderr
    assert "Traceback" not in done.stderr
