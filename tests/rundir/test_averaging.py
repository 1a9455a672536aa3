"""The mean of checkpoints, and where it is kept."""

import concurrent.futures
import dataclasses
import errno
import re
import shutil
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from flaxformer_mt.rundir import CheckpointError, checkpoint_choice, checkpoint_format
from flaxformer_mt.rundir.checkpoint_choice import (
    average_checkpoints,
    average_meta,
    chosen_weights,
    default_weights,
    write_average,
)
from flaxformer_mt.rundir.weights import load_chosen, load_params
from tests.rundir.snapshots import snapshot, tree


def assert_mean(got, *steps, seed=0):
    """What NumPy makes of the same steps."""

    def mean(*arrays):
        stacked = np.stack([np.asarray(array, np.float64) for array in arrays])
        return stacked.mean(axis=0).astype(arrays[0].dtype)

    def same(a, b):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-7, atol=0
        )

    jax.tree.map(same, got, jax.tree.map(mean, *[tree(step, seed) for step in steps]))


@pytest.mark.parametrize("ema", [False, True])
def test_the_newest_or_the_best_are_averaged(run, saved, ema):
    """What was validated is: of checkpoints with a moving average, that one."""
    bleu = {1: 9.0, 2: 1.0, 3: 8.0, 4: 2.0}
    saved(*(snapshot(step, ema=ema, bleu=value) for step, value in bleu.items()))
    seed = 3 if ema else 0
    for arguments, expected in (((3,), [2, 3, 4]), ((2, "best"), [1, 3]), ((1,), [4])):
        params, steps = average_checkpoints(run, *arguments)
        assert steps == expected
        assert_mean(params, *expected, seed=seed)


def test_where_a_score_ranks_nothing_the_loss_chooses_and_a_line_says_so(run, saved, caplog):
    losses = {20: 4.0, 40: 2.0, 60: 3.0}
    saved(*(snapshot(step, bleu=0.0, loss=loss) for step, loss in losses.items()))
    assert chosen_weights(run, "auto").name == "best, step 40"
    assert "bleu is below 1 at each of 3 validated checkpoints" in caplog.text
    caplog.clear()
    assert average_checkpoints(run, 2, "best")[1] == [40, 60]
    assert "so the lowest loss decides which is best" in caplog.text


def test_what_a_start_or_a_stop_has_left_is_not_averaged(run, saved):
    """It lies anywhere between the regular ones, or has not been trained at all."""
    start, stop = (
        dataclasses.replace(snapshot(step), kind=kind) for step, kind in ((0, "start"), (5, "stop"))
    )
    saved(start, snapshot(2), snapshot(4, bleu=1.0), stop, snapshot(6))
    params, steps = average_checkpoints(run, 3)
    assert steps == [2, 4, 6]
    assert_mean(params, 2, 4, 6)
    few = (
        r"4 regular checkpoints, there are 3 \(steps 2, 4, 6; those of a start, a stop or an "
        r"earlier end don't count\); average fewer \(--last 3\), or keep more with a higher "
    )
    for arguments, message in [((4,), few), ((2, "best"), r"1 \(steps 4\); .*training\.keep_best")]:
        with pytest.raises(CheckpointError, match=message):
            average_checkpoints(run, *arguments)
    with pytest.raises(ValueError, match="cannot average 0"):
        average_checkpoints(run, 0)


def test_the_sum_is_in_float64(run, saved):
    """In float32, 1e8 + 1 - 1e8 is 0."""
    for step, value in enumerate([1e8, 1.0, -1e8]):
        saved(dataclasses.replace(snapshot(step), params={"w": jnp.float32(value)[None]}))
    params, _ = average_checkpoints(run, 3)
    assert params["w"][0] == np.float32(1 / 3)


def test_the_stored_average_is_loaded_and_replaced(run, saved, monkeypatch):
    saved(*map(snapshot, (1, 2, 3)))
    for n in (2, 3):
        params, steps = average_checkpoints(run, n)
        write_average(run, params, steps)
        assert average_meta(run)["steps"] == steps
        assert_mean(load_params(run, "average"), *steps)
    assert sorted(p.name for p in run.checkpoints.iterdir()) == ["1", "2", "3", "average"]
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    (run.checkpoints / "average.new").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(ocp.Checkpointer, "save", full)
        with pytest.raises(CheckpointError, match="average: cannot be written: .*No space left"):
            write_average(run, tree(7), [7])
    assert average_meta(run)["steps"] == [1, 2, 3]
    write_average(run, tree(7), [7])
    assert_mean(load_params(run, "average"), 7)


def test_an_average_is_whole_whenever_its_replacement_is_killed(run, monkeypatch):
    def killed(folder):
        (folder / "params" / "manifest.ocdbt").unlink()
        raise KeyboardInterrupt

    write_average(run, tree(1), [1])
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_choice, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            write_average(run, tree(7), [7])
    assert_mean(load_params(run, "average"), 7)
    write_average(run, tree(2), [2])
    assert [path.name for path in run.checkpoints.iterdir()] == ["average"]


def at_once(count, work):
    """Threads do the same work, each with its number; their results."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


@pytest.mark.parametrize("exchanges", [True, False])
def test_an_average_can_be_read_and_replaced_by_many_at_once(run, saved, monkeypatch, exchanges):
    """Also where the system can't exchange two folders at once."""
    if not exchanges:
        unsupported = mock.Mock(side_effect=OSError(errno.EINVAL, "Invalid argument"))
        monkeypatch.setattr(checkpoint_choice, "exchange", unsupported)
    saved(*map(snapshot, (1, 2, 3)))
    write_average(run, *average_checkpoints(run, 1))
    expected = {f"average of steps {steps}" for steps in ("3", "2, 3", "1, 2, 3")}

    def work(number):
        for turn in range(4):
            if number < 3:
                write_average(run, *average_checkpoints(run, 1 + (number + turn) % 3))
                continue
            for _ in range(5):
                assert default_weights(run) == "average"
                chosen, params = load_chosen(run, "auto")
                assert chosen.name in expected
                steps = [int(step) for step in re.findall(r"\d+", chosen.name)]
                assert_mean(params, *steps)

    at_once(6, work)
    assert sorted(p.name for p in run.checkpoints.iterdir()) == ["1", "2", "3", "average"]


def test_an_average_has_the_name_of_what_was_loaded(run, saved, monkeypatch):
    """Even if it had another one before and after."""
    saved(*map(snapshot, (1, 2, 3)))
    write_average(run, tree(3), [3])
    choose, read = checkpoint_choice.chosen_weights, checkpoint_format.read_tree

    def chosen_then_replaced(*arguments):
        chosen = choose(*arguments)
        write_average(run, tree(1), [1])
        return chosen

    def read_then_replaced(*arguments):
        params = read(*arguments)
        write_average(run, tree(3), [3])
        return params

    monkeypatch.setattr(checkpoint_choice, "chosen_weights", chosen_then_replaced)
    monkeypatch.setattr(checkpoint_format, "read_tree", read_then_replaced)
    chosen, params = load_chosen(run, "auto")
    assert chosen.name == "average of steps 1"
    assert_mean(params, 1)


def test_what_training_removes_meanwhile_is_chosen_again(run, saved, monkeypatch):
    """The newest checkpoints, to be averaged or loaded, may be older ones a moment later."""
    saved(*map(snapshot, (1, 2, 3)))
    read = checkpoint_format.read_weights

    def late(folder):
        if folder.name == "2":
            shutil.rmtree(folder)
        return read(folder)

    monkeypatch.setattr(checkpoint_format, "read_weights", late)
    params, steps = average_checkpoints(run, 2)
    assert steps == [1, 3]
    assert_mean(params, 1, 3)
    saved(snapshot(4))
    shutil.rmtree(run.checkpoints / "3")

    # Chosen and loaded, twice.
    selected = mock.Mock(side_effect=[3, 3, 4, 4])
    monkeypatch.setattr(checkpoint_choice, "select_step", selected)
    assert load_chosen(run, "latest")[0].name == "latest, step 4"


def test_a_damaged_one_is_named(run, saved):
    saved(snapshot(1), snapshot(2))
    write_average(run, *average_checkpoints(run, 1))
    (run.checkpoints / "1" / "params" / "manifest.ocdbt").unlink()
    with pytest.raises(CheckpointError, match="checkpoints/1: params"):
        average_checkpoints(run, 2)
    (run.checkpoints / "average" / "meta" / "metadata").write_text("{}")
    with pytest.raises(CheckpointError, match="average: meta does not match"):
        load_params(run, "average")
