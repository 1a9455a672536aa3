"""Damage of every kind is noticed by name, set aside, and costs one checkpoint.

A machine that fails to read is no damage: nothing is set aside or deleted for it.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir import CheckpointError, UnreadError, checkpoint_format
from flaxformer_mt.rundir.checkpoint_choice import (
    best_steps,
    default_weights,
    list_steps,
    regular_steps,
)
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.rundir.weights import load_params
from tests.rundir.snapshots import KEEP_ALL, abstract, assert_same, snapshot

FORM = abstract(snapshot(1))


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


def meta_is_a_pipe(step: Path) -> None:
    (step / "meta" / "metadata").unlink()
    os.mkfifo(step / "meta" / "metadata")


def manifest_is_a_pipe(step: Path) -> None:
    (step / "params" / "manifest.ocdbt").unlink()
    os.mkfifo(step / "params" / "manifest.ocdbt")


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
    # In every run one of each: an array, a file, our own description, another step's files.
    "flip_byte": flip_byte,
    "delete_file": lambda step: largest_data_file(step / "params").unlink(),
    "change_meta": change_meta,
    "manifest_is_a_pipe": manifest_is_a_pipe,
    "swap_with_older": lambda step: take_from_older(step, "params"),
    "rename_older": lambda step: take_from_older(step, "."),
    "truncate_file": lambda step: halve(largest_data_file(step / "opt_state")),
    "truncate_manifest": lambda step: os.truncate(step / "params" / "manifest.ocdbt", 10),
    "delete_item": lambda step: shutil.rmtree(step / "opt_state"),
    "empty_folder": empty_folder,
    "delete_meta": lambda step: (step / "meta" / "metadata").unlink(),
    "truncate_meta": lambda step: halve(step / "meta" / "metadata"),
    "change_position": change_position,
    "meta_is_a_pipe": meta_is_a_pipe,
}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(name, marks=[pytest.mark.extended] * (number > 5))
        for number, name in enumerate(DAMAGES)
    ],
)
def test_damage_costs_one_checkpoint(run, saved, damage, capfd):
    saved(snapshot(1), snapshot(2, bleu=5.0))
    DAMAGES[damage](run.checkpoints / "2")
    reports: list[str] = []
    with Checkpoints(run.checkpoints, KEEP_ALL, say=reports.append) as checkpoints:
        assert_same(checkpoints.restore(*FORM), snapshot(1))
        assert checkpoints.steps() == [1]
        (report,) = reports
        assert str(run.checkpoints / "2") in report
        assert report.endswith("set aside as damaged-2, going back to step 1")
        assert "\n" not in report and capfd.readouterr() == ("", "")
        # The run goes on, and the step is saved anew.
        assert checkpoints.save(snapshot(2, bleu=5.0))
        assert_same(checkpoints.restore(*FORM), snapshot(2, bleu=5.0))
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["1", "2", "damaged-2"]


def test_without_orbax_metadata_the_numbers_are_proof_enough(run, saved):
    """Our own description names every array; digests show that they are the right ones."""
    saved(snapshot(2))
    for name in ("params/_METADATA", "opt_state/_METADATA", "_CHECKPOINT_METADATA"):
        (run.checkpoints / "2" / name).unlink()
    with Checkpoints(run.checkpoints, KEEP_ALL) as checkpoints:
        assert_same(checkpoints.restore(*FORM), snapshot(2))
    assert load_params(run, "latest")


def test_several_damaged_steps_are_passed_over_if_one_is_whole(run, saved):
    """What fails everywhere is rather the machine's fault than each checkpoint's."""
    saved(snapshot(2), snapshot(3))
    (run.checkpoints / "damaged-3").mkdir()
    flip_byte(run.checkpoints / "3")
    DAMAGES["delete_file"](run.checkpoints / "2")
    reports: list[str] = []
    with Checkpoints(run.checkpoints, KEEP_ALL, say=reports.append) as checkpoints:
        with pytest.raises(CheckpointError, match="none of the checkpoints 2, 3 can be") as raised:
            checkpoints.restore(*FORM)
        assert all(f"checkpoints/{step}: params" in str(raised.value) for step in (2, 3))
        assert list_steps(run.checkpoints) == [2, 3] and not reports
        checkpoints.save(snapshot(1))
        assert checkpoints.restore(*FORM).step == 1
    assert "set aside as damaged-3-2" in reports[0] and "params: 1 of 3 arrays" in reports[0]
    assert "set aside as damaged-2" in reports[1]
    assert list_steps(run.checkpoints) == [1]


def test_a_reader_is_told_and_nothing_is_moved(run, saved):
    saved(snapshot(1), snapshot(2))
    flip_byte(run.checkpoints / "2")
    message = "checkpoints/2: params: .*; choose another checkpoint: there are 1, 2"
    with pytest.raises(CheckpointError, match=message):
        load_params(run, "latest")
    assert load_params(run, 1)
    assert list_steps(run.checkpoints) == [1, 2]


@pytest.fixture
def failing(monkeypatch) -> dict[str, tuple[Exception, int]]:
    """By item, "STEP/NAME": what reading it meets, and how many times."""
    faults: dict[str, tuple[Exception, int]] = {}
    original = checkpoint_format.reading

    def reading(folder: Path, name: str, read: Callable[[], Any]) -> Any:
        def flaky() -> Any:
            item = f"{folder.name}/{name}"
            error, times = faults.pop(item, (None, 0))
            if error is None or not times:
                return read()
            faults[item] = error, times - 1
            raise error

        return original(folder, name, flaky)

    monkeypatch.setattr(checkpoint_format, "reading", reading)
    return faults


def of_the_system(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/some/file")


def wrapped(text: str) -> Exception:
    """TensorStore has a form of its own for the system's errors, and Orbax wraps that."""
    error = Exception("Encountered error while reading array index")
    error.__cause__ = ValueError(text)
    return error


MANY = """UNKNOWN: Error reading "w/0" in OCDBT database at local file "/x": Failed to open:
Too many open files [os_error_code='24'] [tensorstore_spec='...']"""


def test_what_the_machine_lacks_is_an_error_and_nothing_is_moved(run, saved, failing):
    saved(snapshot(1), snapshot(2))
    denied = "PERMISSION_DENIED: ... [os_error_code='13']"
    with Checkpoints(run.checkpoints, TrainingConfig(), say=pytest.fail) as checkpoints:
        for item, error, message in [
            ("meta", of_the_system(errno.EIO), ".*output error.*; run the command"),
            ("opt_state", of_the_system(errno.EIO), ".*output error.*; run the command"),
            ("params", wrapped(MANY), "Too many open files"),
            ("params", wrapped(denied), "Permission denied"),
            ("params", ValueError("PERMISSION_DENIED: reading local file"), "ValueError"),
            ("params", MemoryError("too much"), "MemoryError"),
        ]:
            failing[f"2/{item}"] = error, 1000
            with pytest.raises(UnreadError, match=f"2: {item} cannot be read: {message}"):
                checkpoints.restore(*FORM)
            failing.clear()
    assert list_steps(run.checkpoints) == [1, 2]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_step_that_does_not_say_what_it_is_worth_is_kept(run, saved, failing, damaged):
    few = TrainingConfig(keep_latest=1, keep_best=1, keep_for_average=0)
    saved(snapshot(1, bleu=40.0), snapshot(2, bleu=30.0), settings=few)
    if damaged:
        halve(run.checkpoints / "1" / "meta" / "metadata")
    else:
        failing["1/meta"] = of_the_system(errno.EIO), 1
    reports: list[str] = []
    with Checkpoints(run.checkpoints, few, say=reports.append) as checkpoints:
        checkpoints.save(snapshot(3, bleu=35.0))
    assert list_steps(run.checkpoints) == [1, 3]
    if damaged:
        return
    assert len(reports) == 1 and reports[0].endswith("; keeping it for now")
    with Checkpoints(run.checkpoints, few) as checkpoints:
        checkpoints.save(snapshot(4, bleu=36.0))
    assert list_steps(run.checkpoints) == [1, 4]


def test_no_other_is_called_the_best_or_regular_meanwhile(run, saved, failing):
    saved(snapshot(1, bleu=40.0), snapshot(2, bleu=30.0))
    failing["1/meta"] = of_the_system(errno.ESTALE), 1000
    for choose in (
        lambda: best_steps(run.checkpoints, 1),
        lambda: default_weights(run),
        lambda: regular_steps(run.checkpoints),
    ):
        with pytest.raises(UnreadError, match="1: meta cannot be read"):
            choose()
