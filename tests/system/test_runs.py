"""Runs and machines as their commands tell of them: averaged, tried, observed and examined."""

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from flaxformer_mt.rundir.metrics_log import read_metrics
from tests.cli.conftest import Done, run_captured
from tests.system.conftest import run_program, tiny

AVERAGE = "average of steps 10, 15, 20"


def test_an_average_is_what_translate_and_evaluate_use(run, trained, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")
    done = run("average", "--workdir", workdir)
    assert done.status == 0 and "averaged steps 10, 15, 20" in done.errors

    done = run("translate", "--workdir", workdir, stdin=b"The old dog sleeps.\n")
    assert done.status == 0 and f"the weights '{AVERAGE}'" in done.errors
    done = run("evaluate", "--workdir", workdir)  # the config's test sets
    assert done.status == 0 and done.output.startswith("held_out: sacrebleu_13a ")
    recorded = json.loads((workdir / "evaluation" / "held_out.json").read_text())
    assert recorded["sentences"] == 20 and recorded["weights"] == AVERAGE
    assert (workdir / "evaluation" / "held_out.hyp.txt").read_text().count("\n") == 20


class Command(NamedTuple):
    """A training command that has ended, and what its run directory held then."""

    workdir: Path
    done: Done
    names: set[str]


@pytest.fixture(scope="module")
def dry_run(corpus, tmp_path_factory) -> Command:
    workdir = tmp_path_factory.mktemp("dry") / "run"
    done = run_captured("train", *tiny(corpus), "--workdir", workdir, "--dry-run")
    return Command(workdir, done, {path.name for path in workdir.iterdir()})


@pytest.fixture(scope="module")
def profiled(corpus, dry_run) -> Command:
    """Trains in the folder that the dry run has prepared."""
    workdir = dry_run.workdir
    call = ("train", *tiny(corpus), "--workdir", workdir)
    done = run_captured(*call, "--profile-steps", "12:14")
    assert done.status == 0, done.errors
    return Command(workdir, done, {path.name for path in workdir.iterdir()})


def test_a_dry_run_measures_and_makes_no_run(dry_run):
    assert dry_run.done.status == 0, dry_run.done.errors
    for pattern in (
        r"^longest of 2 shapes +\d+ rows of \d+ \+ \d+ positions$",
        r"^memory of a device +state and batch \d+ MiB, temporary \d+ MiB",
        r"^one step +[\d,]+ ms \(best of 3\)$",
        r"^mfu +\d+\.\d% of ",
        r"^20 steps +an estimate: \d+:\d\d:\d\d if all have this shape",
    ):
        output = dry_run.done.output
        assert re.search(pattern, output, re.MULTILINE), (pattern, output)
    assert dry_run.names == {"data", "vocabulary", "lock"}


def test_training_is_traced_in_the_steps_that_are_named(profiled):
    errors = profiled.done.errors
    assert len(re.findall(r"^step .* · mfu [\d.]+% · ETA", errors, re.MULTILINE)) == 4
    assert "trace of steps 12 to 14 written" in errors
    (trace,) = (profiled.workdir / "profile").glob("plugins/profile/*/*.xplane.pb")
    assert trace.stat().st_size > 1000


def test_the_time_of_training_is_accounted_for(profiled):
    account = json.loads((profiled.workdir / "goodput.json").read_text())
    assert sum(account["seconds"].values()) == pytest.approx(account["wall_seconds"])
    assert account["seconds"]["lost"] == 0
    metrics = read_metrics(profiled.workdir / "metrics.jsonl")
    lines = [line for line in metrics if line["kind"] == "train"]
    assert all(0 < line[name] < 1 for line in lines for name in ("mfu", "goodput"))
    goodput = r"^goodput [\d.]+% of 0:\d\d:\d\d in 1 start$"
    assert re.search(goodput, profiled.done.errors, re.MULTILINE)


def test_steps_before_a_checkpoint_cannot_be_traced(run, corpus, profiled):
    call = ("train", *tiny(corpus), "--workdir", profiled.workdir)
    done = run(*call, "--config.training.steps=30", "--profile-steps", "3:9")
    assert done.status == 2 and "cannot be traced: this run resumes after step" in done.errors


@pytest.mark.extended
def test_doctor_finds_what_is_well_and_what_is_wrong(tmp_path):
    """On eight devices, with a place that is a file and a mesh that they do not make."""
    (tmp_path / "file").write_text("")
    config = ("--config", "quickstart", "--config.mesh.fsdp=3")
    place = ("--workdir", tmp_path / "file" / "runs")
    done = run_program("doctor", *place, *config, JAX_NUM_CPU_DEVICES="8")
    assert done.returncode == 2, done.stderr
    states = {line[5:20].strip(): line[:5].strip() for line in done.stdout.splitlines()}
    assert states["checkpoint"] == states["config"] == "FAIL"
    assert {"versions", "devices", "product", "space", "cache"} <= states.keys()
    assert all(states[name] == "ok" for name in ("step float32", "step bfloat16", "collective"))
    assert "a sum over 8 devices" in done.stdout
    assert "2 failed" in done.stderr and "Traceback" not in done.stderr
