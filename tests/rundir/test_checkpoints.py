"""Saving and restoring: bit-equal, asynchronous, and the right steps kept."""

from __future__ import annotations

import dataclasses
import resource
import signal
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.rundir import CheckpointError
from flaxformer_mt.rundir.checkpoint_choice import KeepPolicy, best_steps, list_steps, select_step
from flaxformer_mt.rundir.checkpoints import Checkpoints, load_params
from flaxformer_mt.rundir.layout import RunDirectory
from tests.rundir.snapshots import ENVIRONMENT, abstract, assert_same, snapshot

KEEP_ALL = KeepPolicy(keep_for_average=100)


def opened(run: RunDirectory, policy: KeepPolicy = KEEP_ALL) -> Checkpoints:
    def refuse(message):
        raise AssertionError(message)

    return Checkpoints(run.checkpoints, policy, report=refuse)


@pytest.mark.parametrize(
    ("ema", "change"), [(False, {}), (True, {}), (False, {"opt_state": ((), {})})]
)
def test_what_was_saved_is_restored_bit_for_bit(run, saved, ema, change):
    wanted = snapshot(7, ema=ema, bleu=12.5, loss=float("nan"))
    wanted = dataclasses.replace(wanted, metrics={"bleu": 12.5, "name": "x"}, **change)
    saved(wanted)
    with opened(run) as checkpoints:
        form = jax.eval_shape(lambda: wanted.ema) if ema else None
        assert_same(checkpoints.restore(*abstract(wanted), abstract_ema=form), wanted)
        assert checkpoints.steps() == [7]


def test_steps_are_chosen_by_name(run, saved):
    shots = [snapshot(10, bleu=1.0), snapshot(20, bleu=3.0), snapshot(30, bleu=2.0), snapshot(40)]
    saved(*shots)
    with opened(run) as checkpoints:
        form = abstract(shots[0])
        assert checkpoints.latest_step() == 40 and checkpoints.best_step() == 20
        assert_same(checkpoints.restore(*form), shots[3])
        assert_same(checkpoints.restore(*form, "best"), shots[1])
        assert_same(checkpoints.restore(*form, 30), shots[2])
        with pytest.raises(CheckpointError, match="no checkpoint 25; there are 10, 20, 30, 40"):
            checkpoints.restore(*form, 25)
    assert best_steps(run.checkpoints, 2) == [20, 30]
    assert select_step(run.checkpoints, "latest") == 40


def test_best_follows_the_policy_at_hand(run, saved):
    saved(snapshot(1, bleu=9.0, loss=2.0), snapshot(2, bleu=8.0, loss=1.0))
    assert select_step(run.checkpoints, "best") == 1
    by_loss = KeepPolicy(metric="loss", mode="min")
    with opened(run, by_loss) as checkpoints:
        assert checkpoints.best_step() == 2
        assert checkpoints.restore(*abstract(snapshot(1)), "best").step == 2
        checkpoints.save(snapshot(3, bleu=1.0, loss=3.0))
    assert select_step(run.checkpoints, "best") == 2


def test_an_empty_run_says_so(run):
    with opened(run) as checkpoints:
        assert checkpoints.steps() == []
        assert checkpoints.latest_step() is None and checkpoints.best_step() is None
        with pytest.raises(CheckpointError, match="holds no checkpoint"):
            checkpoints.restore(*abstract(snapshot(0)))
        with pytest.raises(CheckpointError, match="holds no checkpoint"):
            checkpoints.restore(*abstract(snapshot(0)), "best")
    with pytest.raises(CheckpointError, match="holds no checkpoint; train"):
        load_params(run, "latest")
    with pytest.raises(CheckpointError, match="has no averaged parameters"):
        load_params(run, "average")


def test_without_validation_there_is_no_best(run, saved):
    saved(snapshot(1), snapshot(2))
    with opened(run) as checkpoints:
        assert checkpoints.best_step() is None
    with pytest.raises(CheckpointError, match="none is best; there are 1, 2"):
        load_params(run, "best")


def test_retention_across_reopening(run):
    """The best is kept though it is old, the newest though it is bad, after a restart as well."""
    policy = KeepPolicy(keep_latest=2, keep_best=1, keep_for_average=0)
    values = {5: 9.0, 10: 3.0, 13: 4.0, 20: 7.0, 30: 5.0, 40: None, 50: 2.0, 60: 1.0}
    for step, value in values.items():
        with opened(run, policy) as checkpoints:
            metrics = {} if value is None else {"bleu": value}
            checkpoints.save(snapshot(step, **metrics))
            assert checkpoints.latest_step() == step
        assert list_steps(run.checkpoints)[-1] == step
    assert list_steps(run.checkpoints) == [5, 50, 60]
    with opened(run, policy) as checkpoints:
        for step in range(70, 75):
            checkpoints.save(snapshot(step, bleu=float(step)))
        checkpoints.wait()
        assert checkpoints.steps() == list_steps(run.checkpoints) == [73, 74]
        assert checkpoints.best_step() == 74


def test_lower_is_better_for_a_loss(run):
    policy = KeepPolicy(keep_latest=1, keep_best=2, keep_for_average=0, metric="loss", mode="min")
    with opened(run, policy) as checkpoints:
        for step, loss in enumerate([3.0, 1.0, float("nan"), 2.0, 5.0, 4.0]):
            checkpoints.save(snapshot(step, loss=loss))
    assert list_steps(run.checkpoints) == [1, 3, 5]
    assert select_step(run.checkpoints, "best") == 1


def test_a_step_is_saved_once(run):
    with opened(run) as checkpoints:
        assert checkpoints.save(snapshot(1, bleu=1.0))
        assert not checkpoints.save(snapshot(1, bleu=2.0))
        assert checkpoints.restore(*abstract(snapshot(1))).metrics == {"bleu": 1.0}


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": {"w": 1.5}}, "params: w is a float, and only arrays"),
        ({"params": {"w": np.zeros(3)}}, "params: w is float64, which JAX cannot restore"),
        ({"position": {"x": {1, 2}}}, "position is not plain JSON"),
        ({"metrics": {"x": jnp.ones(2)}}, "meta is not plain JSON"),
    ],
)
def test_what_would_not_come_back_is_refused_at_once(run, change, message):
    with opened(run) as checkpoints:
        with pytest.raises(CheckpointError, match=message):
            checkpoints.save(dataclasses.replace(snapshot(1), **change))
        assert checkpoints.save(snapshot(1)), "and the next save goes on"
    assert list_steps(run.checkpoints) == [1]


def test_another_model_is_named_and_the_checkpoint_stays(run, saved):
    saved(snapshot(1), snapshot(2))
    params, opt_state = abstract(snapshot(2))
    kernel = jax.ShapeDtypeStruct((16, 4, 9), jnp.float32)
    wider = {"embedding": params["embedding"], "encoder": {"layer_0": {
        "kernel": kernel, "scale": params["encoder"]["layer_0"]["scale"]}}}  # fmt: skip
    with opened(run) as checkpoints:
        for other, message in [
            (
                wider,
                r"2: params: encoder/layer_0/kernel is float32\[16, 4, 8\], and these settings "
                r"make it float32\[16, 4, 9\]; use the settings",
            ),
            (params | {"more": kernel}, "params: the checkpoint lacks more"),
            ({"encoder": params["encoder"]}, "params: these settings make no embedding"),
            (
                params | {"embedding": jax.ShapeDtypeStruct((64, 16), jnp.bfloat16)},
                r"embedding is float32\[64, 16\].*bfloat16",
            ),
        ]:
            with pytest.raises(CheckpointError, match=message):
                checkpoints.restore(other, opt_state)
        with pytest.raises(CheckpointError, match="opt_state: .* and 5 more"):
            checkpoints.restore(params, ((), opt_state[1]._replace(mu={}, nu={}), opt_state[2]))
        with pytest.raises(CheckpointError, match="holds no ema, which these settings need"):
            checkpoints.restore(params, opt_state, abstract_ema=params)
    assert list_steps(run.checkpoints) == [1, 2]


def test_parameters_alone_need_no_model(run, saved):
    first, second = snapshot(1, bleu=2.0), snapshot(2, ema=True, bleu=1.0)
    saved(first, second)
    for which, weights, wanted in [
        ("best", "auto", first.params),
        (1, "params", first.params),
        ("latest", "auto", second.ema),
        (2, "params", second.params),
        (2, "ema", second.ema),
    ]:
        got = load_params(run, which, weights=weights)
        assert jax.tree.structure(got) == jax.tree.structure(wanted)
        assert all(
            np.asarray(a).tobytes() == np.asarray(b).tobytes() and a.dtype == b.dtype
            for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True)
        )
    with pytest.raises(CheckpointError, match="holds no ema"):
        load_params(run, 1, weights="ema")
    with pytest.raises(CheckpointError, match="no checkpoint 3; there are 1, 2"):
        load_params(run, 3)


def test_a_newer_format_is_refused_and_stays(run, saved, monkeypatch):

    from flaxformer_mt.rundir import checkpoint_format

    monkeypatch.setattr(checkpoint_format, "META_VERSION", 2)
    saved(snapshot(1))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="format version 2, .* up to 1; upgrade"):
        load_params(run, "latest")
    assert list_steps(run.checkpoints) == [1]


def test_a_file_in_the_place_of_the_directory_is_named(run):
    run.checkpoints.write_text("x")
    with pytest.raises(CheckpointError, match="cannot hold checkpoints: File exists"):
        Checkpoints(run.checkpoints, KEEP_ALL)


def test_a_directory_that_vanished_is_a_save_error_and_not_the_end(run):
    checkpoints = opened(run)
    checkpoints.save(snapshot(1))
    checkpoints.wait()
    run.checkpoints.rename(run.path / "moved")
    run.checkpoints.write_text("in the way")
    with pytest.raises(CheckpointError, match="checkpoints: .*could not be saved|cannot hold"):
        checkpoints.save(snapshot(2))
        checkpoints.wait()
    run.checkpoints.unlink()
    (run.path / "moved").rename(run.checkpoints)
    assert checkpoints.steps() == [1]
    checkpoints.save(snapshot(3))
    checkpoints.close()
    assert list_steps(run.checkpoints) == [1, 3]


def test_a_full_disk_is_a_save_error_and_not_the_end(run, capfd):
    """With a limit on the size of files, which fails as a full disk does: in mid-file."""
    big = dataclasses.replace(
        snapshot(3), params={"w": jax.random.normal(jax.random.key(0), (512, 512))}
    )
    policy = KeepPolicy(keep_latest=2, keep_best=0, keep_for_average=0)
    checkpoints = opened(run, policy)
    for step in (1, 2):
        checkpoints.save(snapshot(step))
    checkpoints.wait()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(CheckpointError, match="could not be saved.*earlier ones are unharmed"):
            checkpoints.save(big)
            checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert checkpoints.steps() == list_steps(run.checkpoints) == [1, 2]
    checkpoints.save(big)
    checkpoints.close()
    assert list_steps(run.checkpoints) == [2, 3]
    assert capfd.readouterr() == ("", ""), "the exception says it; no log besides"


KILLED = """
    import dataclasses, os, signal, sys
    from pathlib import Path
    import jax
    from tests.rundir.snapshots import snapshot
    from flaxformer_mt.rundir.checkpoints import Checkpoints
    from flaxformer_mt.rundir.checkpoint_choice import KeepPolicy

    directory = Path(sys.argv[1])
    checkpoints = Checkpoints(directory, KeepPolicy())
    checkpoints.save(snapshot(1))
    checkpoints.wait()
    weights = {"w": jax.random.normal(jax.random.key(0), (2048, 2048))}
    checkpoints.save(dataclasses.replace(snapshot(2), params=weights))
    # Nothing renames the step while this loop looks for its temporary folder.
    while not any(directory.glob("2.orbax-checkpoint-tmp*")):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.extended
def test_a_kill_during_a_save_costs_that_save_only(run):
    code = [sys.executable, "-c", textwrap.dedent(KILLED)]
    done = subprocess.run([*code, run.checkpoints], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [path.name for path in run.checkpoints.iterdir()]
    assert any("tmp" in name for name in left), left
    # Something like it of another user of the directory is not ours to sweep.
    (run.checkpoints / "average.new.orbax-checkpoint-tmp").mkdir()
    with opened(run) as checkpoints:
        assert checkpoints.steps() == [1]
        assert_same(checkpoints.restore(*abstract(snapshot(1))), snapshot(1))
        assert sorted(path.name for path in run.checkpoints.iterdir()) == [
            "1",
            "average.new.orbax-checkpoint-tmp",
        ]
        assert checkpoints.save(snapshot(2))
    assert list_steps(run.checkpoints) == [1, 2]
