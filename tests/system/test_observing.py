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
from tests.cli.conftest import Run, run
from tests.system.conftest import ROOT, tiny

__all__ = ["run"]


def test_a_dry_run_makes_no_run_and_what_it_leaves_is_trained_and_observed(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "run"
    done = run("train", *tiny(corpus), "--workdir", workdir, "--dry-run")
    assert done.status == 0, done.errors
    for pattern in (
        r"^longest of 2 shapes +\d+ rows of \d+ \+ \d+ positions$",
        r"^compiled in +[\d.]+ s$",
        r"^memory of a device +state and batch \d+ MiB, temporary \d+ MiB",
        r"^one step +[\d,]+ ms, the best of 3$",
        r"^positions +[\d,]+ source \+ [\d,]+ target a second$",
        r"^mfu +[\d.]+% of measured float32 product$",
        r"^20 steps +\d+:\d\d:\d\d if all had this shape",
    ):
        assert re.search(pattern, done.output, re.MULTILINE), (pattern, done.output)
    assert {path.name for path in workdir.iterdir()} == {"data", "vocabulary", "lock"}

    changed = ("train", *tiny(corpus), "--config.model.d_ff=48", "--workdir", workdir)
    done = run(*changed, "--profile-steps", "12:14")
    assert done.status == 0, done.errors
    assert len(re.findall(r"^step .* · mfu [\d.]+% · ETA", done.errors, re.MULTILINE)) == 4
    assert "trace of steps 12 to 14 written" in done.errors
    (trace,) = (workdir / "profile").glob("plugins/profile/*/*.xplane.pb")
    assert trace.stat().st_size > 1000
    assert re.search(r"^goodput [\d.]+% of 0:\d\d:\d\d in 1 start$", done.errors, re.MULTILINE)
    account = json.loads((workdir / "goodput.json").read_text())
    assert sum(account["seconds"].values()) == pytest.approx(account["wall_seconds"])
    assert account["seconds"]["lost"] == 0
    for line in read_metrics(workdir / "metrics.jsonl"):
        if line["kind"] == "train":
            assert 0 < line["mfu"] < 1
            assert 0 < line["goodput"] < 1
    # The same account goes on with the next start.
    done = run(*changed, "--config.training.steps=25")
    assert done.status == 0, done.errors
    assert re.search(r"^goodput [\d.]+% of 0:\d\d:\d\d in 2 starts$", done.errors, re.MULTILINE)


def test_doctor_finds_this_machine_well(run: Run, tmp_path: Path) -> None:
    done = run("doctor", "--workdir", tmp_path, "--config", "quickstart", "--json")
    assert done.status == 0, done.output + done.errors
    found = {finding["name"]: finding for finding in json.loads(done.output)}
    assert {"versions", "devices", "step float32", "step bfloat16", "collective"} <= found.keys()
    assert {"product", "checkpoint", "space", "cache", "config"} <= found.keys()
    assert all(finding["state"] != "FAIL" for finding in found.values())
    assert found["step float32"]["values"]["difference"] == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.extended
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
