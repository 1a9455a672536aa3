"""`train` as a user runs it: killed and stopped, and from another run's weights."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from flaxformer_mt.rundir.checkpoint_choice import list_steps, select_step
from flaxformer_mt.rundir.checkpoint_format import read_meta
from flaxformer_mt.rundir.digests import flatten_paths, tree_digest
from flaxformer_mt.rundir.layout import open_run, read_status
from flaxformer_mt.rundir.weights import load_params
from tests.system.conftest import run_program, started, tiny, wait_until


def group(number: int) -> list[str]:
    """The command lines of a process group's living processes."""
    command_lines = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == number and state != "Z":
                command_lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except (OSError, ValueError):
            continue
    return command_lines


def stop(training: subprocess.Popen[str], workdir: Path, number: signal.Signals) -> int:
    """Sends a signal to the whole group, as terminals and schedulers do; the step of the stop."""
    os.killpg(training.pid, number)
    _, errors = training.communicate(timeout=300)
    assert training.returncode == 75, errors
    assert f"{number.name} received" in errors and "the same command resumes" in errors
    assert "Traceback" not in errors
    status = read_status(open_run(workdir))
    assert status is not None and status.state == "stopped"
    assert (workdir / "checkpoints" / str(status.step)).exists()
    wait_until(lambda: not group(training.pid))
    return status.step


def newest(workdir: Path) -> int:
    return max(list_steps(workdir / "checkpoints"), default=0)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_killed_and_stopped_runs_end_as_an_undisturbed_one(run, corpus, tmp_path):
    """SIGKILL at some step, then SIGTERM at another, then on: bit-equal parameters."""
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    train = ("train", *tiny(corpus), "--config.training.validate_every=100000", "--workdir")
    last = 0
    for number in (signal.SIGKILL, signal.SIGTERM):
        changes = ("training.steps=100000", f"data.workers={int(number == signal.SIGTERM)}")
        endless = (*train, disturbed, *(f"--config.{change}" for change in changes))
        training = started(*endless, new_group=True)
        try:
            wait_until(lambda last=last: newest(disturbed) > last, training)
            if number == signal.SIGTERM:
                last = stop(training, disturbed, number)
        finally:
            if training.poll() is None or group(training.pid):
                os.killpg(training.pid, signal.SIGKILL)
            training.communicate()
        last = newest(disturbed)
    steps = f"--config.training.steps={last + 3}"
    for workdir in (disturbed, undisturbed):
        run(*train, workdir, steps, status=0)
    undisturbed_digest, disturbed_digest = (
        tree_digest(load_params(open_run(path), last + 3)) for path in (undisturbed, disturbed)
    )
    assert undisturbed_digest == disturbed_digest
    expected = {"config.json", "vocabulary", "data", "checkpoints", "metrics.jsonl", "tensorboard"}
    assert expected | {"status.json"} <= {path.name for path in disturbed.iterdir()}


def test_fine_tuning_takes_weights_and_vocabulary_along(run, corpus, trained, tmp_path):
    fine = ("train", "--workdir", tmp_path / "fine", "--init-from", trained)
    arguments = [*fine, *tiny(corpus), "--config.training.freeze=encoder/*"]
    run(*arguments, "--config.training.steps=5", status=0)
    before, after = (
        tree_digest(load_params(open_run(path), which))
        for path, which in ((trained, "best"), (tmp_path / "fine", 5))
    )
    assert before.keys() == after.keys()
    frozen = {name for name in before if name.startswith("encoder/")}
    assert frozen and all(before[name] == after[name] for name in frozen)
    assert any(before[name] != after[name] for name in before.keys() - frozen)

    done = run(*arguments, "--config.training.steps=6", status=0)
    assert "is ignored: this run resumes from its own checkpoint" in done.errors
    assert "resuming after step 5" in done.errors

    of_other_size = [
        *tiny(corpus),
        "--config.data.vocabulary.size=250",
        "--workdir",
        tmp_path / "other",
    ]
    assert run("prepare", *of_other_size).status == 0
    done = run("train", *of_other_size, "--init-from", trained)
    assert done.status == 2 and "differs from this run's" in done.last


def test_fine_tuning_takes_moments_along(run, trained, tmp_path):
    """Those of the best checkpoint, whose weights it begins with; the rate begins anew."""
    fine, kept = tmp_path / "fine", "--config.training.keep_moments=true"
    far = [
        f"--config.training.{setting}"
        for setting in (
            "steps=1",
            "schedule.kind=peak",
            "schedule.peak=99",
            "schedule.warmup_steps=1",
        )
    ]
    done = run("train", "--workdir", fine, "--init-from", trained, kept, *far, status=0)
    best = select_step(open_run(trained).checkpoints, "best")
    source = open_run(trained).checkpoints / str(best)
    assert f"starting with the weights and the moments of {source}" in done.errors

    begun, before = (read_meta(place)["leaves"] for place in (fine / "checkpoints" / "0", source))
    assert begun["params"] == before["params"]
    differing = {
        name for name, leaf in before["opt_state"].items() if begun["opt_state"][name] != leaf
    }
    # Adam's own count is that of its moments; the schedule's and the run's begin anew.
    assert differing == {"step", "opt_state/1/count"}
    assert "opt_state/0/nu/embedding/shared" in before["opt_state"]

    # With such a rate the newest checkpoint isn't the best.
    after = ("train", "--init-from", fine, "--config.training.steps=1", "--workdir")
    done = run(*after, tmp_path / "after", kept, status=0)
    assert f"the moments of {fine / 'checkpoints' / '0'}" in done.errors
    # A run that starts from this one doesn't keep them because this one did.
    done = run(*after, tmp_path / "without", status=0)
    assert "the moments of" not in done.errors


@pytest.fixture(scope="module")
def adapted(trained, tmp_path_factory) -> Path:
    """A run of adapters beside `trained`'s weights, averaged."""
    path = tmp_path_factory.mktemp("adapted") / "run"
    settings = ("adapters.rank=1", "steps=3", "save_every=1")
    flags = [f"--config.training.{setting}" for setting in settings]
    done = run_program("train", "--workdir", path, "--init-from", trained, *flags)
    assert "parameters are trained, the others stay as they are" in done.stderr
    run_program("average", "--workdir", path, "--last", 2).check_returncode()
    return path


def test_adapters_are_kept_small_and_used_like_any_weights(run, trained, adapted):
    base, *checkpoints = (
        read_meta(adapted / "checkpoints" / name)["leaves"]["params"] for name in ("base", "2", "3")
    )
    best = select_step(open_run(trained).checkpoints, "best")
    assert base == read_meta(open_run(trained).checkpoints / str(best))["leaves"]["params"]
    assert checkpoints[0] != checkpoints[1] and not base.keys() & checkpoints[0].keys()

    mean, second, third = (
        np.asarray(
            load_params(open_run(adapted), which)["decoder"]["layers_0"]["feed_forward"]["w_in"]
        )
        for which in ("average", 2, 3)
    )
    np.testing.assert_allclose(mean, (second + third) / 2, atol=1e-7)
    run("translate", "--workdir", adapted, stdin=b"the dog sleeps .\n", status=0)


def test_a_run_that_starts_from_adapters_trains_all_weights(run, adapted, tmp_path):
    after = tmp_path / "after"
    done = run(
        "train", "--workdir", after, "--init-from", adapted, "--config.training.steps=1", status=0
    )
    assert "parameters are trained, the others" not in done.errors
    assert "note: all weights are trained with the learning rate of that run's adapters" in (
        done.errors
    )
    start, mean = (
        flatten_paths(load_params(open_run(path), which))
        for path, which in ((after, 0), (adapted, "average"))
    )
    for name, leaf in mean.items():
        np.testing.assert_array_equal(start[name], leaf)


def test_adapters_need_the_weights_beside_which_they_were_trained(run, adapted, tmp_path):
    alone = ("train", "--workdir", tmp_path / "alone", "--config", "quickstart")
    done = run(*alone, "--config.training.adapters.rank=1")
    assert done.status == 2 and "'training.adapters.rank' = 1 needs --init-from" in done.last
    assert not (tmp_path / "alone").exists()

    copy = tmp_path / "copy"
    shutil.copytree(adapted, copy)
    shutil.rmtree(copy / "checkpoints" / "base")
    done = run("translate", "--workdir", copy, "--weights", 3, stdin=b"the dog sleeps .\n")
    assert done.status == 1
    assert (
        "checkpoints/base" in done.last
        and "are adapters of the weights that were there: restore" in done.last
    )
    assert "choose another" not in done.last


def test_a_training_with_pair_weights(run, corpus, tmp_path):
    """Tried beforehand, packed and with drawn segmentations; half the text weighs nothing."""
    weights = tmp_path / "weights.txt"
    weights.write_text("1\n0\n" * 200)
    arguments = [*tiny(corpus), f"--config.data.train.mine.pair_weights={weights}"]
    arguments += ["--config.data.vocabulary.sampling=0.1", "--config.training.steps=2"]
    arguments += ["--config.data.batch.form=pack", "--workdir", tmp_path / "run"]
    done = run("train", *arguments, "--dry-run", status=0)
    assert "dropped: 200 weight of 0" in done.errors and "compiled in" in done.output
    done = run("train", *arguments, status=0)
    assert "finished at step 2" in done.errors
