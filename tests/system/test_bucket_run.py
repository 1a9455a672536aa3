"""The commands on a run directory in a bucket: as on a local one, to the bit."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.checkpoints import load_params
from flaxformer_mt.rundir.digests import tree_digest
from flaxformer_mt.rundir.layout import open_run, read_status
from flaxformer_mt.rundir.metrics_log import read_metrics
from tests.rundir.buckets import needs_clients
from tests.system.conftest import run_program as command, tiny

pytestmark = [needs_clients, pytest.mark.extended]


def test_train_resume_average_translate_and_evaluate(
    run, corpus, trained, gcs, bucket, tmp_path, monkeypatch
):
    workdir = f"gs://{bucket}/runs/tiny"
    gcs.put(f"{bucket}/runs/tiny/data.parts/one", b"of a cluster that was lost")
    run("prepare", *tiny(corpus), "--workdir", workdir, status=0)
    assert not gcs.names(f"{bucket}/runs/tiny/data.parts")
    part = command("train", *tiny(corpus), "--config.training.steps=10", "--workdir", workdir)
    assert part.returncode == 0, part.stderr
    # Lines past the checkpoint, as a kill leaves them.
    there = open_run(workdir)
    line = {"step": 11, "kind": "train"}
    there.metrics.write_bytes(there.metrics.read_bytes() + json.dumps(line).encode() + b"\n")

    # What the metrics in the bucket reach when a checkpoint becomes one.
    reached: dict[str, bytes] = {}

    def watch(method: str, name: str) -> None:
        if method == "PUT" and name.endswith("0/commit_success.txt"):
            reached[name.split("/")[-2]] = gcs.objects[f"{bucket}/runs/tiny/metrics.jsonl"]

    gcs.fault = watch
    # The rest on another machine: nothing is in its cache.
    monkeypatch.setenv("FLAXFORMER_CACHE", str(tmp_path / "elsewhere"))
    done = command("train", *tiny(corpus), "--workdir", workdir)
    assert done.returncode == 0, done.stderr
    assert "resuming after step 10" in done.stderr and "finished at step 20" in done.stderr
    assert b'"step": 20, "kind": "valid"' in reached["20"]
    account = json.loads(gcs.objects[f"{bucket}/runs/tiny/goodput.json"])
    assert (account["starts"], account["step"]) == (2, 20)
    status = read_status(there)
    assert status and (status.state, status.step) == ("finished", 20)
    assert list_steps(there.checkpoints) == list_steps(open_run(trained).checkpoints)
    assert not there.lock_file.exists()
    assert tree_digest(load_params(there, 20)) == tree_digest(load_params(open_run(trained), 20))

    def told(where: Path) -> list[tuple[Any, ...]]:
        return [(line["kind"], line["step"], line.get("loss")) for line in read_metrics(where)]

    # Where training ended once at step 10, it validated there all the same.
    assert told(there.metrics) == told(trained / "metrics.jsonl")
    assert gcs.names(f"{bucket}/runs/tiny/tensorboard/events")
    assert (there.samples / "step-20.txt").read_text() == (
        trained / "samples" / "step-20.txt"
    ).read_text()

    run("average", "--workdir", workdir, "--last", 2, status=0)
    text = (corpus / "test.en").read_bytes()
    translated = run("translate", "--workdir", workdir, "--weights", 20, stdin=text, status=0)
    locally = run("translate", "--workdir", trained, "--weights", 20, stdin=text)
    assert translated.output == locally.output
    run("evaluate", "--workdir", workdir, status=0)
    scored = json.loads((there.evaluation / "held_out.json").read_bytes())
    assert scored["weights"] == "average of steps 15, 20"
    assert os.listdir(tmp_path / "elsewhere") != []
