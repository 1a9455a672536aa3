"""Each part on a tiny model: what it says when all is as planned, and what when it is not."""

import dataclasses
import json
import time

import jax
import pytest

from flaxformer_mt.diagnosis import machine
from flaxformer_mt.diagnosis.machine import check_bucket
from flaxformer_mt.parallel.processes import ALONE
from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.fit import largest_shape
from flaxformer_mt.planning.measured import COLLECTIVES, ELSEWHERE, PartTime
from flaxformer_mt.rehearsal import LIMITS, rehearsed as rehearsed_room
from flaxformer_mt.rehearsal.input import check_input
from flaxformer_mt.rehearsal.rehearsed import (
    Rehearsed,
    end_rehearsal,
    on_built_in_text,
    read_plan,
)
from flaxformer_mt.rehearsal.saving import check_saving
from flaxformer_mt.rehearsal.stages import STAGES, rehearse
from flaxformer_mt.rehearsal.steps import check_steps, of_part
from flaxformer_mt.rundir import RunDirectoryError, paths
from flaxformer_mt.rundir.paths import as_path
from tests.rehearsal.plans import plan_of
from tests.rundir.buckets import needs_clients
from tests.training.examples import tiny


def rehearsed(place, step_seconds: float | None = 1e3, **changes) -> Rehearsed:
    config = tiny()
    plan = None if step_seconds is None else plan_of(config, step_seconds, **changes)
    return Rehearsed(config=config, folder=place / "tpu-hour", plan=plan, processes=ALONE)


def test_steps_are_timed_by_part_and_a_step_that_is_too_slow_fails(tmp_path):
    fine, *parts = check_steps(rehearsed(tmp_path))
    assert fine.state == "ok" and "times the plan" in fine.text
    names = {name.removesuffix(" measured") for part in parts for name in part.values}
    assert {"feed_forward", "attention projections", "optimizer and metrics"} <= names
    slow, *_ = check_steps(rehearsed(tmp_path, step_seconds=1e-6))
    assert slow.state == "FAIL" and "the parts below say where" in slow.advice
    unplanned, *_ = check_steps(rehearsed(tmp_path, step_seconds=None))
    assert unplanned.state == "warn" and "--plan" in unplanned.advice


@pytest.mark.parametrize(
    ("part", "advice"),
    [
        (PartTime("loss", 0.010, 0.014), ""),  # 1.4 times
        (PartTime("loss", 0.001, 0.004), ""),  # 3 per cent of the step
        (PartTime("loss", 0.010, 0.017), "compare `product`"),
        (PartTime(COLLECTIVES, 0.010, 0.017), "the network between chips"),
        (PartTime(COLLECTIVES, 0.0, 0.007), "the network between chips"),  # planned as hidden
        (PartTime(ELSEWHERE, 0.0, 0.007), "another program ran"),
        (PartTime("new", 0.0, 0.004), ""),
    ],
)
def test_what_a_slow_part_means_is_said_if_it_is_noticeable(part, advice):
    finding = of_part(part, step_seconds=0.1, has_plan=True)
    assert advice in finding.advice and bool(advice) == bool(finding.advice)
    assert f"{1e3 * part.measured:.2f} ms" in finding.text
    assert not of_part(part, step_seconds=0.1, has_plan=False).advice


@pytest.mark.parametrize(
    ("key", "value"), [("devices", 8), ("parameters", 7), ("mesh", {"data": 4}), ("remat", True)]
)
def test_the_plan_of_another_step_is_refused(tmp_path, key, value):
    (finding,) = rehearse("steps", rehearsed(tmp_path, **{key: value}))
    assert f"its {key} is {value}, here it is" in finding.text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ('{"shape": {}}', "not the plan of a step"),
        (json.dumps(dict.fromkeys(rehearsed_room._KEYS, 0)), "does not fit: it needs 0.00"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_with_the_command_that_makes_one(
    tmp_path, content, complaint
):
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PlanningError, match=complaint):
        read_plan(str(path))


def test_a_host_that_is_slower_than_its_devices_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsed_room, "_FEWEST_PAIRS", 2_000)
    for needed, state in ((1.0, "ok"), (1e15, "FAIL")):
        (finding,) = check_input(rehearsed(tmp_path, positions_per_second=needed), seconds=0.2)
        assert finding.state == state and "positions/s" in finding.text
    assert "data.workers" in finding.advice


def test_a_checkpoint_that_takes_longer_than_the_steps_between_two_fails(tmp_path):
    (fine,) = check_saving(rehearsed(tmp_path))
    assert fine.state == "ok" and "unchanged" in fine.text
    (slow,) = check_saving(rehearsed(tmp_path, step_seconds=1e-9))
    assert slow.state == "FAIL" and "training would wait" in slow.text
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_comes_back_changed_in_one_array_is_seen(tmp_path, monkeypatch):
    class Damaging(machine.Checkpoints):
        def restore(self, *abstract):
            snapshot = super().restore(*abstract)
            leaves, tree = jax.tree.flatten(snapshot.params)
            params = jax.tree.unflatten(tree, [leaves[0] + 1, *leaves[1:]])
            return dataclasses.replace(snapshot, params=params)

    monkeypatch.setattr(machine, "Checkpoints", Damaging)
    (finding,) = check_saving(rehearsed(tmp_path))
    assert finding.state == "FAIL" and "it came back changed" in finding.text


@needs_clients
@pytest.mark.extended
def test_a_slow_bucket_is_seen(gcs, bucket):
    """Against an interval that this machine keeps with ease while the bucket answers at once."""
    place = as_path(f"gs://{bucket}/runs")
    (unplanned,) = check_saving(rehearsed(place, None))
    interval = max(3.0, 4 * unplanned.values["save_seconds"])
    step_seconds = interval / tiny().training.save_every

    def delayed(method: str, name: str) -> None:
        time.sleep(interval / 6 if method in ("POST", "PUT") else 0.0)

    (fine,) = check_saving(rehearsed(place, step_seconds))
    gcs.fault = delayed
    (slow,) = check_saving(rehearsed(place, step_seconds))
    assert (fine.state, slow.state) == ("ok", "FAIL"), (fine.text, slow.text)
    assert "training.save_every" in slow.advice


@needs_clients
@pytest.mark.extended
def test_every_host_tries_the_bucket_and_says_what_it_may_not_do(gcs, bucket, monkeypatch):
    """Also those that write nothing of a run."""
    monkeypatch.setattr(paths, "is_primary", lambda: False)
    (finding,) = check_bucket(as_path(f"gs://{bucket}/runs"))
    assert finding.state == "ok"
    gcs.fault = lambda method, name: 403
    findings = list(rehearse("machine", rehearsed(as_path(f"gs://{bucket}/runs"))))
    failed = {finding.name for finding in findings if finding.state == "FAIL"}
    assert failed == {"bucket", "checkpoint"}


@needs_clients
@pytest.mark.extended
@pytest.mark.parametrize("status", [403, 404])
def test_a_wrong_bucket_and_one_without_rights_are_named(gcs, bucket, status):
    place = as_path(f"gs://{bucket}/runs")
    (fine,) = check_bucket(place)
    assert fine.state == "ok" and not gcs.names(f"{bucket}/runs")
    gcs.fault = lambda method, name: status
    (finding,) = check_bucket(place)
    assert finding.state == "FAIL" and f"can't write to {place}" in finding.text
    assert "roles/storage.objectUser" in finding.advice


@needs_clients
@pytest.mark.extended
def test_a_bucket_that_is_only_written_to_is_seen(gcs, bucket):
    gcs.fault = lambda method, name: 403 if method == "DELETE" else None
    (finding,) = check_bucket(as_path(f"gs://{bucket}/runs"))
    assert finding.state == "FAIL" and "can't delete from" in finding.text


def test_a_rehearsal_removes_its_own_folder_and_no_other(tmp_path):
    mine = rehearsed(tmp_path)
    mine.begin()
    mine.run.mkdir()
    mine.begin()
    assert not mine.run.exists()
    end_rehearsal(mine.folder)
    assert not mine.folder.exists()
    mine.run.mkdir(parents=True)
    end_rehearsal(mine.folder)
    with pytest.raises(RunDirectoryError, match="not a rehearsal's folder"):
        mine.begin()
    assert mine.run.exists()


def test_a_batch_of_the_rehearsal_has_the_rows_that_the_config_needs():
    packed = {"form": "pack", "src_length": 8, "tgt_length": 8, "multiple": 4096, "tokens": 65536}
    config = tiny({f"data.batch.{key}": value for key, value in packed.items()})
    assert largest_shape(on_built_in_text(config)).rows == 4096
    assert on_built_in_text(tiny()).data.batch.tokens == tiny().data.batch.tokens


def test_the_short_training_is_of_the_configs_model_on_generated_text():
    config = tiny({"training.save_every": 7})
    short = on_built_in_text(config)
    assert short.model == config.model and short.training.optimizer == config.training.optimizer
    assert {corpus.kind for corpus in (*short.data.train, short.data.valid)} == {"synthetic"}
    assert short.training.save_every == short.training.steps == 60
    assert {*STAGES, "plan"} == LIMITS.keys()
