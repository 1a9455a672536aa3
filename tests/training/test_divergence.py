"""Losses that are not finite: skipped, counted, rolled back behind, and in the end an error."""

import gc
import shutil
from typing import Any

import jax
import numpy as np
import pytest

from flaxformer_mt.data.order import Position
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.store import TokenPairs, Tokens
from flaxformer_mt.rundir import CheckpointError
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.training.progress import DivergenceError, Progress
from tests.training.examples import VOCAB, assert_same, on_host, program, tiny
from tests.training.runs import TRAIN, VALID, Run

SETTINGS = {
    "training.steps": 8,
    "training.log_every": 100,
    "training.save_every": 2,
    "training.keep_for_average": 20,
    "training.max_bad_updates": 3,
    "training.max_rollbacks": 2,
}


def poison(*indices: int) -> TokenPairs:
    """TRAIN with a token that no table has, which reads NaN, in these batches of epoch 0."""
    config = tiny()
    plan = Planner(TRAIN, config.data.batch, config.training.seed).window(0, 0).plan
    assert len(plan) > 14
    [src] = TRAIN.sides["src"].shards
    flat = src.flat.copy()
    for index in indices:
        flat[src.offsets[plan[index][1].pairs[0]]] = VOCAB
    return TokenPairs([Tokens(flat, src.offsets)], TRAIN.sides["tgt"].shards)


def trained_on(run: Run) -> str:
    """A letter for each batch: good or bad."""
    return "".join("b" if (batch.src >= VOCAB).any() else "g" for batch in run.batches)


def test_single_bad_batches_are_skipped_and_counted(tmp_path):
    """Checkpoints of steps 4 and 6 wait: what made the bad updates may be their parameters."""
    run = Run(tmp_path, SETTINGS, train_pairs=poison(3, 5))
    assert run.start().state == "finished"
    assert trained_on(run) == "gggbgbgg"
    assert run.log()[0]["skipped"] == 2 and "skipped 2" in run.shown
    assert np.isfinite(run.log()[0]["loss"])
    assert run.steps() == [2, 5, 7, 8]


@pytest.fixture(scope="module")
def rolled_back(tmp_path_factory) -> Run:
    """Step 4 is saved; batches 4, 5 and 6 are bad; training goes on from 4 with batch 7."""
    settings = {**SETTINGS, "training.log_every": 2}
    run = Run(tmp_path_factory.mktemp("rolled_back"), settings, train_pairs=poison(4, 5, 6))
    assert run.start().state == "finished"
    return run


def test_a_run_of_bad_updates_is_rolled_back_and_left_out(rolled_back):
    assert trained_on(rolled_back) == "ggggbbb" + "gggg"
    assert (
        "step 7: 3 consecutive updates were not finite; restored step 4, skipping their batches "
        "(restore 1 of 2)\n"
    ) in rolled_back.shown
    end = rolled_back.snapshot()
    progress = Progress.from_dict(end.position)
    assert progress.left_out == (Position(0, 0, 4), Position(0, 0, 5), Position(0, 0, 6))
    assert (progress.rollbacks, progress.diverged) == (0, 7), "what came after it is saved"
    assert Progress.from_dict(rolled_back.snapshot(6).position).rollbacks == 1
    assert int(end.opt_state["skipped"]) == 0


def test_reports_of_steps_that_are_rolled_back_are_taken_back(rolled_back):
    # The report of step 6 was made twice and is taken back once.
    assert [line["step"] for line in rolled_back.log()] == [2, 4, 6, 8, 8]
    assert rolled_back.goodput.seconds["lost"] > 0


def test_parameters_come_from_the_good_batches_alone(rolled_back):
    """The same good batches alone give the same parameters."""
    program = rolled_back.on
    state = program.init()
    for batch in [*rolled_back.batches[:4], *rolled_back.batches[7:]]:
        state, _ = program.train_step(state, batch)
    assert_same(on_host(rolled_back.snapshot().params), on_host(state.params))


def test_going_back_twice_from_one_place_counts_twice(tmp_path):
    """The checkpoints of steps 2 and 3 do not lie beyond it: they repair nothing."""
    settings = {**SETTINGS, "training.save_every": 1, "training.max_rollbacks": 1}
    run = Run(tmp_path, settings, train_pairs=poison(1, 2, 3, 6, 7, 8))
    with pytest.raises(DivergenceError, match=r"step 6: .* 1 restores did not help"):
        run.start()
    assert run.steps() == [1, 2, 3]


def test_the_error_names_the_checkpoint_before_it(tmp_path):
    settings = {**SETTINGS, "training.max_rollbacks": 1}
    run = Run(tmp_path, settings, train_pairs=poison(4, 5, 6, 7, 8, 9))
    with pytest.raises(DivergenceError, match="did not help; the newest checkpoint: --weights 4"):
        run.start()
    assert run.steps() == [2, 4]


def test_a_model_without_a_finite_validation_loss_is_not_decoded(tmp_path):
    """The search would refuse it, which ended training without saying which checkpoint is good."""

    def decode(params: Any, step: int) -> dict[str, float]:
        raise AssertionError("asked for translations")

    [src] = VALID.sides["src"].shards
    no_numbers = [Tokens(np.full_like(src.flat, VOCAB), src.offsets)]
    settings = {**SETTINGS, "training.best_metric": "bleu", "training.validate_bleu": True}
    valid = TokenPairs(no_numbers, VALID.sides["tgt"].shards)
    run = Run(tmp_path, settings, valid_pairs=valid, decode=decode)
    assert run.start().state == "finished"
    assert "step 8: the validation loss is not finite: training has diverged" in run.shown
    assert np.isnan(run.log()[-1]["loss"]) and np.isnan(run.log()[-1]["bleu"])


def test_going_back_needs_no_room_for_two_states(tmp_path, monkeypatch):
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(program().abstract))
    alive: list[int] = []
    restore = Checkpoints.restore

    def watched(self: Checkpoints, *arguments: Any, **more: Any) -> Any:
        gc.collect()
        alive.append(sum(array.nbytes for array in jax.live_arrays()))
        return restore(self, *arguments, **more)

    monkeypatch.setattr(Checkpoints, "restore", watched)
    run = Run(tmp_path, SETTINGS, train_pairs=poison(4, 5, 6))
    gc.collect()
    before = sum(array.nbytes for array in jax.live_arrays())
    run.start()
    assert len(alive) == 1
    assert alive[0] - before < state / 2


@pytest.mark.parametrize("step", [4, 8])
def test_a_save_that_fails_ends_training_and_a_restart_repeats_it(tmp_path, monkeypatch, step):
    """As on a disk that is full when the save of this step has begun: its last step, or another."""
    failed: list[int] = []
    wait = Checkpoints.wait

    def failing(self: Checkpoints) -> None:
        wait(self)
        if step in self.steps() and not failed:
            failed.append(step)
            shutil.rmtree(self.directory / str(step))
            self._failed(OSError("No space left on device"))

    monkeypatch.setattr(Checkpoints, "wait", failing)
    run = Run(tmp_path, SETTINGS)
    with pytest.raises(CheckpointError, match="could not be saved"):
        run.start()
    assert max(run.steps()) == step - 2
    assert run.start().state == "finished" and run.steps() == [2, 4, 6, 8]


def test_a_rollback_takes_back_a_step_that_is_already_under_way(tmp_path):
    """The third bad step's metrics arrive while a fourth runs, whose checkpoint is due."""
    settings = {**SETTINGS, "training.save_every": 4, "training.steps": 9}
    run = Run(tmp_path, settings, train_pairs=poison(4, 5, 6))
    assert run.start().state == "finished"
    assert trained_on(run) == "ggggbbbg" + "ggggg"
    assert "step 8: 3 consecutive updates were not finite; restored step 4" in run.shown
    progress = Progress.from_dict(run.snapshot().position)
    assert [place.index for place in progress.left_out] == [4, 5, 6]


def test_what_was_left_out_stays_so_across_a_stop(tmp_path):
    undisturbed = Run(tmp_path / "undisturbed", SETTINGS, train_pairs=poison(4, 5, 6))
    undisturbed.start()
    run = Run(tmp_path / "stopped", SETTINGS, train_pairs=poison(4, 5, 6))
    run.start(stop_after=6)
    # The signal came with bad updates under way: it waited until one was made.
    assert run.steps() == [2, 4, 5]
    assert run.start().state == "finished"
    ours, theirs = run.snapshot(), undisturbed.snapshot()
    assert_same(
        on_host((ours.params, ours.opt_state, ours.ema)),
        on_host((theirs.params, theirs.opt_state, theirs.ema)),
    )
    assert run.log() == undisturbed.log()


def test_without_a_checkpoint_training_begins_anew(tmp_path):
    run = Run(tmp_path, {**SETTINGS, "training.save_every": 100}, train_pairs=poison(1, 2, 3))
    assert run.start().state == "finished"
    assert "restored step 0" in run.shown
    assert trained_on(run) == "gbbbg" + "gggggggg"


def test_when_nothing_helps_the_error_says_what_might(tmp_path):
    [src] = TRAIN.sides["src"].shards
    bad = [Tokens(np.full_like(src.flat, VOCAB), src.offsets)]
    run = Run(tmp_path, SETTINGS, train_pairs=TokenPairs(bad, TRAIN.sides["tgt"].shards))
    said = "in 3 consecutive updates, and 2 restores .*learning rate.*warm-up.*optimizer.clip_norm"
    with pytest.raises(DivergenceError, match=said):
        run.start()
    assert run.shown.count("were not finite; restored") == 2
    assert run.steps() == []
