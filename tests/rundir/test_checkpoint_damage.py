"""Damage of every kind is noticed by name, set aside, and costs one checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flaxformer_mt.rundir import CheckpointError
from flaxformer_mt.rundir.checkpoint_choice import KeepPolicy, list_steps
from flaxformer_mt.rundir.checkpoints import Checkpoints, load_params
from tests.rundir.snapshots import abstract, assert_same, snapshot

KEEP_ALL = KeepPolicy(keep_for_average=100)


def largest_data_file(item: Path) -> Path:
    files = [path for path in item.rglob("*") if path.is_file() and path.parent.name == "d"]
    return max(files, key=lambda path: path.stat().st_size)


def flip_byte(step: Path) -> None:
    file = largest_data_file(step / "params")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


def halve(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty_folder(step: Path) -> None:
    shutil.rmtree(step)
    step.mkdir()


def change_meta(step: Path) -> None:
    file = step / "meta" / "metadata"
    document = json.loads(file.read_text())
    document["content"]["leaves"]["params"]["embedding"]["shape"] = [64, 17]
    file.write_text(json.dumps(document))


def change_position(step: Path) -> None:
    file = step / "position" / "metadata"
    file.write_text(file.read_text().replace('"index": 2', '"index": 3'))


def take_from_older(step: Path, item: str) -> None:
    """Healthy files, of another step."""
    shutil.rmtree(step / item)
    shutil.copytree(step.parent / "1" / item, step / item)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flip_byte": flip_byte,
    "truncate_file": lambda step: halve(largest_data_file(step / "opt_state")),
    "delete_file": lambda step: largest_data_file(step / "params").unlink(),
    "truncate_manifest": lambda step: os.truncate(step / "params" / "manifest.ocdbt", 10),
    "delete_item": lambda step: shutil.rmtree(step / "opt_state"),
    "empty_folder": empty_folder,
    "delete_meta": lambda step: (step / "meta" / "metadata").unlink(),
    "truncate_meta": lambda step: halve(step / "meta" / "metadata"),
    "change_meta": change_meta,
    "change_position": change_position,
    "swap_with_older": lambda step: take_from_older(step, "params"),
    "rename_older": lambda step: take_from_older(step, "."),
}


# In every run one of each: an array, a file, our own description, another step's files.
OFTEN = {"flip_byte", "delete_file", "change_meta", "swap_with_older"}


@pytest.mark.parametrize(
    "damage",
    [pytest.param(name, marks=[pytest.mark.extended] * (name not in OFTEN)) for name in DAMAGES],
)
def test_damage_costs_one_checkpoint(run, saved, damage, capfd):
    saved(snapshot(1), snapshot(2, bleu=5.0))
    DAMAGES[damage](run.checkpoints / "2")
    reports: list[str] = []
    with Checkpoints(run.checkpoints, KEEP_ALL, report=reports.append) as checkpoints:
        with pytest.raises(CheckpointError, match=r"checkpoints/2: "):
            checkpoints.restore(*abstract(snapshot(1)), 2)
        assert checkpoints.steps() == [1, 2], "asked for by name, it is refused and left"
        assert_same(checkpoints.restore(*abstract(snapshot(1))), snapshot(1))
        assert checkpoints.steps() == [1] and checkpoints.best_step() is None
        (report,) = reports
        assert str(run.checkpoints / "2") in report
        assert report.endswith("set aside as damaged-2, going back to step 1")
        assert "\n" not in report and capfd.readouterr() == ("", "")
        # The run goes on, and the step is saved anew.
        assert checkpoints.save(snapshot(2, bleu=5.0))
        assert_same(checkpoints.restore(*abstract(snapshot(1))), snapshot(2, bleu=5.0))
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["1", "2", "damaged-2"]


def test_without_orbax_metadata_the_numbers_are_proof_enough(run, saved):
    """Our own description names every array; digests show that they are the right ones."""
    saved(snapshot(1), snapshot(2))
    for name in ("params/_METADATA", "opt_state/_METADATA", "_CHECKPOINT_METADATA"):
        (run.checkpoints / "2" / name).unlink()
    with Checkpoints(run.checkpoints, KEEP_ALL) as checkpoints:
        assert_same(checkpoints.restore(*abstract(snapshot(2))), snapshot(2))
    assert load_params(run, "latest")


def test_several_damaged_steps_are_passed_over(run, saved):
    saved(*map(snapshot, (1, 2, 3)))
    (run.checkpoints / "damaged-3").mkdir()
    flip_byte(run.checkpoints / "3")
    empty_folder(run.checkpoints / "2")
    reports: list[str] = []
    with Checkpoints(run.checkpoints, KEEP_ALL, report=reports.append) as checkpoints:
        assert checkpoints.restore(*abstract(snapshot(1))).step == 1
    assert "set aside as damaged-3-2" in reports[0] and "params has 1 of 3 arrays" in reports[0]
    assert "set aside as damaged-2" in reports[1]
    assert list_steps(run.checkpoints) == [1]


def test_without_a_whole_one_nothing_is_moved(run, saved):
    """What fails everywhere is rather the machine's fault than each checkpoint's."""
    saved(snapshot(1), snapshot(2))
    flip_byte(run.checkpoints / "1")
    DAMAGES["delete_file"](run.checkpoints / "2")
    with Checkpoints(run.checkpoints, KEEP_ALL) as checkpoints:
        with pytest.raises(CheckpointError, match="none of the checkpoints 1, 2 can be") as raised:
            checkpoints.restore(*abstract(snapshot(1)))
    assert "checkpoints/1: params" in str(raised.value)
    assert "checkpoints/2: params" in str(raised.value)
    assert list_steps(run.checkpoints) == [1, 2]


def test_a_reader_is_told_and_nothing_is_moved(run, saved):
    saved(snapshot(1), snapshot(2))
    flip_byte(run.checkpoints / "2")
    with pytest.raises(
        CheckpointError, match="checkpoints/2: params .*; choose another checkpoint: there are 1, 2"
    ):
        load_params(run, "latest")
    assert load_params(run, 1)
    assert list_steps(run.checkpoints) == [1, 2]
