"""Saving and restoring: bit-equal, asynchronous, and the right steps kept."""

import dataclasses
import logging
import shutil
import zlib
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir import CheckpointError, UnreadError, checkpoint_format
from flaxformer_mt.rundir.checkpoint_choice import best_steps, list_steps, select_step
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.rundir.digests import flatten_paths
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.weights import load_params
from tests.rundir.snapshots import KEEP_ALL, abstract, assert_same, full_disk, snapshot
from tests.training.examples import assert_same as assert_same_trees


def opened(run, policy: TrainingConfig = KEEP_ALL) -> Checkpoints:
    return Checkpoints(run.checkpoints, policy, say=pytest.fail)


@pytest.mark.parametrize(
    ("ema", "change"), [(False, {}), (True, {}), (False, {"opt_state": ((), {})})]
)
def test_what_was_saved_is_restored_bit_for_bit(run, saved, ema, change):
    metrics = {"bleu": 12.5, "name": "x"}
    state = dataclasses.replace(snapshot(7, ema=ema), metrics=metrics, **change)
    saved(state)
    with opened(run) as checkpoints:
        form = jax.eval_shape(lambda: state.ema) if ema else None
        assert_same(checkpoints.restore(*abstract(state), abstract_ema=form), state)
        assert not checkpoints.save(dataclasses.replace(state, metrics={})), "it is there"
        assert_same(checkpoints.restore(*abstract(state), abstract_ema=form), state)


def test_weights_are_read_without_orbax_as_orbax_reads_them(run, saved, monkeypatch):
    state = snapshot(7)
    saved(state)
    place, weights = run.checkpoints / "7" / "params", flatten_paths(state.params)
    read = checkpoint_format._read_by_orbax(place, weights)
    monkeypatch.setattr(checkpoint_format, "_read_by_orbax", None)
    assert_same_trees(load_params(run, 7), state.params)
    assert_same_trees(flatten_paths(load_params(run, 7)), read)


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b", "a%zz", "50%"])
def test_weights_are_read_without_orbax_below_any_name(run, saved, monkeypatch, name):
    saved(snapshot(7))
    # A reader that takes the name for an address would read these instead.
    shutil.copytree(run.path, run.path.parent / "a b" / "run")
    moved = RunDirectory(shutil.move(run.path, run.path.parent / name / "run"))
    monkeypatch.setattr(checkpoint_format, "_read_by_orbax", None)
    assert_same_trees(load_params(moved, 7), snapshot(7).params)


def test_what_tensorstore_alone_cannot_read_is_told_and_read_by_orbax(
    run, saved, monkeypatch, caplog
):
    saved(snapshot(7))
    failing = mock.Mock(side_effect=ValueError("another format"))
    monkeypatch.setattr(checkpoint_format, "_read_by_tensorstore", failing)
    with caplog.at_level(logging.DEBUG, checkpoint_format.__name__):
        assert_same_trees(load_params(run, 7), snapshot(7).params)
    assert f"{run.checkpoints / '7' / 'params'}: TensorStore alone can't read it" in caplog.text

    monkeypatch.setattr(checkpoint_format, "_read_by_orbax", None)
    failing.side_effect = MemoryError
    with pytest.raises(UnreadError, match="MemoryError"):
        load_params(run, 7)


def test_a_run_without_checkpoints_has_none_to_restore(run):
    with opened(run) as checkpoints:
        assert checkpoints.steps() == []
        assert checkpoints.latest_step() is None
        with pytest.raises(CheckpointError, match="has no checkpoint"):
            checkpoints.restore(*abstract(snapshot(0)))


@pytest.fixture
def four_steps(run, saved):
    """Step 40 has no validation result; by BLEU step 20 is the best, by loss step 10."""
    with opened(run) as checkpoints:
        checkpoints.save(snapshot(40))
    saved(*(snapshot(step, bleu=step % 7, loss=step % 9) for step in (10, 20, 30)))
    return run


def test_the_best_step_has_a_validation_result(run, saved):
    saved(snapshot(40))
    with pytest.raises(CheckpointError, match="none of the checkpoints 40 has a validation result"):
        load_params(run, "best")


def test_the_latest_step_has_the_largest_number(four_steps):
    with opened(four_steps) as checkpoints:
        assert checkpoints.latest_step() == 40
        assert_same(checkpoints.restore(*abstract(snapshot(0))), snapshot(40))


def test_the_best_are_those_of_the_policy_at_hand(four_steps):
    """Readers use a new policy once it has saved a checkpoint."""
    checkpoints_folder = four_steps.checkpoints
    assert best_steps(checkpoints_folder, 2) == [20, 10]
    with opened(four_steps, TrainingConfig(best_metric="loss")) as checkpoints:
        assert select_step(checkpoints_folder, "best") == 20
        checkpoints.save(snapshot(50))
    assert select_step(checkpoints_folder, "best") == 10


def test_a_step_is_chosen_by_its_number_and_by_no_other_name(four_steps):
    assert select_step(four_steps.checkpoints, "10") == 10
    for name in ("newest", "1e1", "", None, 10.0, True):
        with pytest.raises(CheckpointError, match=f"no checkpoint is named {name!r}: give 'auto'"):
            select_step(four_steps.checkpoints, name)


def test_saving_is_safe_with_donation_and_later_changes(run):
    """Arrays go to the next step, and mappings change, while the save goes on."""
    advance = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    params = {"w": jnp.zeros((1024, 1024)), "v": jnp.zeros(3)}
    position, on_host = {"index": 0}, np.zeros((512, 512), np.float32)
    with opened(run) as checkpoints:
        first = dataclasses.replace(snapshot(0), params=params | {"n": on_host}, position=position)
        checkpoints.save(first)
        form = abstract(first)
        position["index"] = 99
        on_host += 1
        for _ in range(20):
            params = advance(params)
        jax.block_until_ready(params)
        restored = checkpoints.restore(*form)
    assert all(float(jnp.abs(restored.params[name]).max()) == 0.0 for name in ("w", "n"))
    assert params["w"][0, 0] == 20.0
    assert restored.position == {"index": 0}


def test_another_model_or_format_is_named_and_the_checkpoint_stays(run, saved, monkeypatch):
    saved(snapshot(1))
    params, opt_state = abstract(snapshot(1))
    kernel = jax.ShapeDtypeStruct((16, 4, 9), jnp.float32)
    layer = params["encoder"]["layer_0"] | {"kernel": kernel}
    with opened(run) as checkpoints:
        for unlike, message in [
            (
                params | {"encoder": {"layer_0": layer}},
                r"1: params: encoder/layer_0/kernel is float32\[16, 4, 8\], but "
                r"float32\[16, 4, 9\] with these settings; use the settings",
            ),
            (params | {"more": kernel}, "params: the checkpoint lacks more"),
            ({"encoder": params["encoder"]}, "params: these settings have no embedding"),
            (
                params | {"embedding": jax.ShapeDtypeStruct((64, 16), jnp.bfloat16)},
                r"embedding is float32\[64, 16\].*bfloat16",
            ),
        ]:
            with pytest.raises(CheckpointError, match=message):
                checkpoints.restore(unlike, opt_state)
        with pytest.raises(CheckpointError, match="opt_state: .* and 5 more"):
            checkpoints.restore(params, ((), opt_state[1]._replace(mu={}, nu={}), opt_state[2]))
        with pytest.raises(CheckpointError, match="has no ema, which these settings need"):
            checkpoints.restore(params, opt_state, abstract_ema=params)
    monkeypatch.setattr(checkpoint_format, "META_VERSION", 0)
    with pytest.raises(CheckpointError, match="format version 1: upgrade"):
        load_params(run, "latest")
    assert list_steps(run.checkpoints) == [1]


def test_parameters_alone_need_no_model(run, saved):
    for which, message in [("latest", "has no checkpoint; train"), ("average", "has no averaged")]:
        with pytest.raises(CheckpointError, match=message):
            load_params(run, which)
    first, second = snapshot(1, bleu=2.0), snapshot(2, ema=True, bleu=1.0)
    saved(first, second)
    of_first, of_second = first.params, second.ema
    for which, expected in (
        ("best", of_first),
        (1, of_first),
        ("latest", of_second),
        (2, of_second),
    ):
        got = load_params(run, which)
        assert_same(
            dataclasses.replace(first, params=got), dataclasses.replace(first, params=expected)
        )
    with pytest.raises(CheckpointError, match="no checkpoint 3; there are 1, 2"):
        load_params(run, 3)


def test_a_file_in_the_place_of_the_directory_is_named(run):
    run.checkpoints.write_text("x")
    with pytest.raises(CheckpointError, match="cannot hold checkpoints: File exists"):
        opened(run)


def test_a_full_disk_is_a_save_error_and_not_the_end(run, capfd):
    big = dataclasses.replace(
        snapshot(3), params={"w": jax.random.normal(jax.random.key(0), (512, 512))}
    )
    checkpoints = opened(run, TrainingConfig(keep_latest=2, keep_best=0, keep_for_average=0))
    for step in (1, 2):
        checkpoints.save(snapshot(step))
    checkpoints.wait()
    message = "could not be saved.*earlier ones are intact"
    with full_disk(100_000), pytest.raises(CheckpointError, match=message):
        checkpoints.save(big)
        checkpoints.wait()
    assert checkpoints.steps() == list_steps(run.checkpoints) == [1, 2]
    checkpoints.save(big)
    checkpoints.close()
    assert list_steps(run.checkpoints) == [2, 3]
    assert capfd.readouterr() == ("", ""), "the exception says it; no log besides"


def test_the_first_one_saved_is_read_back(run, monkeypatch):
    """Orbax may merge no part of a checkpoint and say nothing."""
    first = Checkpoints(run.checkpoints, KEEP_ALL)
    first.save(snapshot(1))
    first._opened().wait_until_finished()
    (run.checkpoints / "1" / "params" / "manifest.ocdbt").unlink()
    with pytest.raises(CheckpointError, match="1: params cannot be read.* although it was just"):
        first.save(snapshot(2))
    first.close()
    assert list_steps(run.checkpoints) == [1]


def test_a_kill_during_a_save_costs_that_save_only(run, saved):
    saved(snapshot(1))
    shutil.copytree(run.checkpoints / "1", run.checkpoints / "2.orbax-checkpoint-tmp")
    # Something like it of another user of the directory is not ours to sweep.
    (run.checkpoints / "average.new.orbax-checkpoint-tmp").mkdir()
    with opened(run) as checkpoints:
        assert_same(checkpoints.restore(*abstract(snapshot(1))), snapshot(1))
        left = sorted(path.name for path in run.checkpoints.iterdir())
        assert left == ["1", "average.new.orbax-checkpoint-tmp"]
        assert checkpoints.save(snapshot(2))
    assert list_steps(run.checkpoints) == [1, 2]


@pytest.mark.parametrize(
    ("ours", "theirs", "asked"),
    [
        ([[10, 20]], [[10, 20]], 1),
        ([[10, 20]], [[10], [10], [10, 20]], 3),
        ([[], [10], [10, 20]], [[10, 20]], 3),
        ([[10, 20]], [[]], checkpoint_format._PATIENCE),
    ],
)
def test_whoever_sees_another_folder_looks_again(monkeypatch, tmp_path, ours, theirs, asked):
    """Where a file system shows processes different steps, they wait, to go on from one.

    What each of two processes lists, call by call, and how often they compare it.
    """
    views, answers = iter(ours), []

    def compare(mine: np.ndarray) -> np.ndarray:
        listed = theirs[min(len(answers), len(theirs) - 1)]
        answers.append(listed)
        return np.stack([mine, np.int32(zlib.crc32(str(listed).encode()) >> 1)])

    monkeypatch.setattr(checkpoint_format.jax, "process_count", lambda: 2)
    monkeypatch.setattr(checkpoint_format.multihost_utils, "process_allgather", compare)
    monkeypatch.setattr(checkpoint_format.time, "sleep", lambda _: None)
    if theirs == [[]]:
        with pytest.raises(CheckpointError, match=r"hosts see different.*here 10, 20.: check how"):
            checkpoint_format.listed_alike(tmp_path, lambda _: next(views, [10, 20]))
    else:
        assert checkpoint_format.listed_alike(tmp_path, lambda _: next(views, [10, 20])) == [10, 20]
    assert len(answers) == asked
