"""The commands on a run directory in a bucket: as on a local one, to the bit."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.digests import tree_digest
from flaxformer_mt.rundir.layout import RunDirectory, open_run, read_status
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.rundir.weights import load_params
from tests.cli.conftest import run_captured
from tests.rundir.buckets import needs_clients, store_of_process
from tests.system.conftest import run_program as command, tiny

pytestmark = [needs_clients, pytest.mark.extended]


@dataclass(frozen=True)
class Resumed:
    """A run that was trained to step 10, and to its end at step 20 on another machine."""

    workdir: str
    objects: str  # what their names in the bucket begin with
    errors: str  # what resuming it said
    parts_after_prepare: list[str]
    metrics_at: dict[str, bytes]  # the metrics in the bucket as a checkpoint becomes one, by step
    cache: Path

    @property
    def run(self) -> RunDirectory:
        return open_run(self.workdir)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Environment variables that point clients to this machine's store."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store_of_process().environment().items():
            patch.setenv(name, value)
        patch.setenv("FLAXFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield patch
    store_of_process().allow()


@pytest.fixture(scope="module")
def resumed(corpus, machine, tmp_path_factory) -> Resumed:
    gcs = store_of_process()
    objects = "of-a-module/runs/tiny"
    workdir = f"gs://{objects}"
    gcs.put(f"{objects}/data.parts/one", b"of a cluster that was lost")
    prepared = run_captured("prepare", *tiny(corpus), "--workdir", workdir)
    assert prepared.status == 0, prepared.errors
    parts = gcs.names(f"{objects}/data.parts")
    first = command("train", *tiny(corpus), "--config.training.steps=10", "--workdir", workdir)
    assert first.returncode == 0, first.stderr
    # Lines past the checkpoint, as a kill leaves them.
    metrics = open_run(workdir).metrics
    line = {"step": 11, "kind": "train"}
    metrics.write_bytes(metrics.read_bytes() + json.dumps(line).encode() + b"\n")

    metrics_at: dict[str, bytes] = {}

    def watch(method: str, name: str) -> None:
        if method == "PUT" and name.endswith("0/commit_success.txt"):
            metrics_at[name.split("/")[-2]] = gcs.objects[f"{objects}/metrics.jsonl"]

    gcs.fault = watch
    # On another machine nothing is in the cache.
    cache = tmp_path_factory.mktemp("elsewhere")
    machine.setenv("FLAXFORMER_CACHE", str(cache))
    second = command("train", *tiny(corpus), "--workdir", workdir)
    assert second.returncode == 0, second.stderr
    gcs.allow()
    return Resumed(workdir, objects, second.stderr, parts, metrics_at, cache)


def test_prepare_removes_the_parts_of_a_cluster_that_was_lost(resumed):
    assert not resumed.parts_after_prepare


def test_training_resumes_on_another_machine_to_the_same_parameters(resumed, trained):
    assert "resuming after step 10" in resumed.errors
    assert "finished at step 20" in resumed.errors
    run, local = resumed.run, open_run(trained)
    assert list_steps(run.checkpoints) == list_steps(local.checkpoints)
    assert tree_digest(load_params(run, 20)) == tree_digest(load_params(local, 20))
    assert os.listdir(resumed.cache) != []


def test_a_finished_run_in_a_bucket_has_its_status_and_no_lock(resumed):
    account = json.loads(store_of_process().objects[f"{resumed.objects}/goodput.json"])
    assert (account["starts"], account["step"]) == (2, 20)
    status = read_status(resumed.run)
    assert status and (status.state, status.step) == ("finished", 20)
    assert not resumed.run.lock_file.exists()


def test_metrics_and_samples_are_those_of_a_local_run(resumed, trained):
    def losses(metrics: Path) -> list[tuple[Any, ...]]:
        return [(line["kind"], line["step"], line.get("loss")) for line in read_metrics(metrics)]

    # The metrics are in the bucket before the checkpoint is.
    assert b'"step": 20, "kind": "valid"' in resumed.metrics_at["20"]
    # Where training ended once at step 10, it validated there all the same.
    assert losses(resumed.run.metrics) == losses(trained / "metrics.jsonl")
    assert store_of_process().names(f"{resumed.objects}/tensorboard/events")
    samples = (resumed.run.samples / "step-20.txt").read_text()
    assert samples == (trained / "samples" / "step-20.txt").read_text()


def test_a_run_in_a_bucket_translates_as_a_local_one(run, resumed, corpus, trained):
    text = (corpus / "test.en").read_bytes()
    weights = ("--weights", 20)
    translated = run("translate", "--workdir", resumed.workdir, *weights, stdin=text, status=0)
    locally = run("translate", "--workdir", trained, *weights, stdin=text)
    assert translated.output == locally.output


def test_a_run_in_a_bucket_is_averaged_and_evaluated(run, resumed):
    run("average", "--workdir", resumed.workdir, "--last", 2, status=0)
    run("evaluate", "--workdir", resumed.workdir, status=0)
    scores = json.loads((resumed.run.evaluation / "held_out.json").read_bytes())
    assert scores["weights"] == "average of steps 15, 20"


def test_adapters_in_a_bucket_are_those_of_a_local_run(resumed, trained, tmp_path):
    """Resumed, beside a base that was saved there; also merged for whoever loads them."""
    local_source = Path(shutil.copytree(trained, tmp_path / "trained"))
    for source in (resumed.workdir, local_source):
        assert command("average", "--workdir", source, "--last", 2).returncode == 0
    remote = "gs://of-a-module/runs/adapted"
    adapters = ("--config.training.adapters.rank=2", "--config.training.save_every=2")
    for workdir, source in ((remote, resumed.workdir), (tmp_path / "adapted", local_source)):
        for steps in (2, 4):
            flags = (*adapters, f"--config.training.steps={steps}")
            done = command("train", "--workdir", workdir, "--init-from", source, *flags)
            assert done.returncode == 0, done.stderr
    assert "resuming after step 2" in done.stderr
    ours, theirs = (
        tree_digest(load_params(open_run(workdir), 4)) for workdir in (remote, tmp_path / "adapted")
    )
    assert ours == theirs
