"""What the loop does and in which order: validation, the best, patience, starting from weights."""

import dataclasses
import gc
import math
import re
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from flaxformer_mt.api.starting import StartError, check_same_form
from flaxformer_mt.data.batch import assemble
from flaxformer_mt.data.pipeline import one_pass
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.rundir.checkpoint_choice import select_step
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import Status
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.training import loop
from flaxformer_mt.training.telemetry import MetricsWindow, Telemetry
from flaxformer_mt.training.validation import doubt, validation_loss
from tests.data.pairs import in_memory, listed
from tests.training.examples import MAX_LENGTH, assert_same, on_host, program, tiny
from tests.training.runs import VALID, Run

BLEU = {"training.best_metric": "bleu", "training.validate_bleu": True}


def test_order_of_operations(tmp_path, monkeypatch):
    """The metrics of a step are fetched while the next one runs, unless something needs them.

    Rates leave compiling, validation and saving out.
    """
    events: list[str] = []

    def note(owner: type, name: str, event: Callable[..., str]) -> None:
        method = getattr(owner, name)

        def noted(self: Any, *arguments: Any, **more: Any) -> Any:
            events.append(event(*arguments))
            return method(self, *arguments, **more)

        monkeypatch.setattr(owner, name, noted)

    def saved(snapshot: Snapshot) -> str:
        assert int(snapshot.opt_state["step"]) == snapshot.step
        return f"save {snapshot.step}"

    note(MetricsWindow, "paused", lambda: "paused")
    note(Telemetry, "step", lambda nll: "metrics")
    note(Telemetry, "training", lambda step, values: f"report {step}")
    note(Telemetry, "validation", lambda step, values: f"validation {step}")
    note(Checkpoints, "save", saved)

    def step(state: Any, batch: Any) -> Any:
        events.append(f"step {len([e for e in events if e.startswith('step')]) + 1}")
        return program().train_step(state, batch)

    changes = {
        **{"training.steps": 5, "training.log_every": 3},
        **{"training.validate_every": 5, "training.save_every": 4},
    }
    Run(tmp_path, changes, on=dataclasses.replace(program(), train_step=step)).start()
    assert events == [
        *("paused", "step 1", "step 2", "metrics", "step 3", "metrics", "metrics", "report 3"),
        *("step 4", "metrics", "paused", "save 4"),
        *("step 5", "metrics", "report 5", "paused", "validation 5", "paused", "save 5"),
    ]


def test_validation_loss_is_per_token():
    """Whatever the batches: the same as all pairs in a single one."""
    params = program().init().params
    scores = validation_loss(program(), VALID, params)
    assert len(list(one_pass(VALID, tiny().data.batch))) > 1
    batch = assemble(VALID, np.arange(len(VALID)), Shape(8, MAX_LENGTH, MAX_LENGTH))
    sums = program().eval_step(params, batch)
    assert float(sums.weight) == VALID.lengths[1].sum()
    assert scores["loss"] == pytest.approx(float(sums.nll / sums.weight), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))


def test_source_gain_is_what_another_pair_s_source_costs():
    """Each pair gets the source of the pair before it in its batch, assembled independently."""
    params = program().init().params
    scores = validation_loss(program(), VALID, params)
    sources, targets = listed(VALID, "src"), listed(VALID, "tgt")
    order = np.lexsort(VALID.lengths).tolist()
    nll = 0.0
    for batch in one_pass(VALID, tiny().data.batch):
        filled = int(batch.sentences)
        numbers, order = order[:filled], order[filled:]
        src = [sources[number][:-1] for number in [numbers[-1], *numbers[:-1]]]
        tgt = [targets[number][:-1] for number in numbers]
        shape = Shape(8, MAX_LENGTH, MAX_LENGTH)
        exchanged = assemble(in_memory(src, tgt), np.arange(filled), shape)
        nll += float(program().eval_step(params, exchanged).nll)
    cost = nll / VALID.lengths[1].sum() - scores["loss"]
    assert scores["source_gain"] == pytest.approx(cost, abs=1e-6)
    assert abs(cost) > 1e-4


def test_a_gain_that_is_none_or_no_number_says_nothing_of_the_source():
    alone = validation_loss(program(), in_memory([[5, 6]], [[6, 7]]), program().init().params)
    assert alone.keys() == {"loss", "perplexity"}
    after = tiny().training.schedule.warmup_steps + 1
    assert doubt({"source_gain": 0.01}, after, tiny()) is not None
    assert doubt({"source_gain": 0.01}, after - 1, tiny()) is None, "every model begins like that"
    for scores in (alone, *({"source_gain": gain} for gain in (0.1, math.nan, -math.inf))):
        assert doubt(scores, after, tiny()) is None


def test_validation_scores_the_moving_average(tmp_path):
    scored = []

    def decode(params: Any, step: int) -> dict[str, float]:
        scored.append((step, on_host(params)))
        return {"bleu": 1.0}

    run = Run(tmp_path, {"training.steps": 3, **BLEU}, decode=decode)
    run.start()
    ((step, params),) = scored
    assert step == 3
    assert_same(params, on_host(run.snapshot().ema))
    line = run.log()[-1]
    assert line["loss"] == validation_loss(program(), VALID, run.snapshot().ema)["loss"]
    assert (line["kind"], line["bleu"]) == ("valid", 1.0)


SHORT = {"steps": 9, "save_every": 2, "validate_every": 6, "minutes": 0.5}
SHORT = {f"training.{name}": value for name, value in SHORT.items()}


class Seconds:
    """A clock: a step takes ten seconds, and a validation four."""

    def __init__(self, run: Run) -> None:
        self.run, self.validations = run, 0
        run.clock, run.decode = self, self.decode

    def __call__(self) -> float:
        return 10.0 * len(self.run.batches) + 4.0 * self.validations

    def decode(self, params: Any, step: int) -> dict[str, float]:
        self.validations += 1
        return {}


@pytest.mark.parametrize(
    ("seconds", "last"),
    # The first validation's time isn't known. After 64 seconds, that at step 6 is done.
    [(15, 2), (20, 2), (21, 3), (60, 6), (68, 6), (69, 7), (78, 7), (79, 8), (1000, 9)],
)
def test_a_time_limit_ends_training_at_a_step_that_is_validated(tmp_path, seconds, last):
    run = Run(tmp_path, SHORT)
    Seconds(run)
    outcome = run.start(seconds=seconds)
    over = "all 9 steps done" if last == 9 else "0.5 minutes are over (training.minutes)"
    assert outcome == Status(state="finished", step=last, reason=over)
    validated = [line["step"] for line in run.log() if line["kind"] == "valid"]
    assert validated == sorted({last, *(step for step in (6,) if step < last)})
    assert run.snapshot().step == last and run.snapshot().metrics["loss"] > 0


def test_a_time_limit_counts_all_starts(tmp_path):
    run = Run(tmp_path, SHORT)
    Seconds(run)
    assert run.start(seconds=55, stop_after=3).state == "stopped"
    run.batches.clear()
    outcome = run.start(seconds=55)
    assert (outcome.state, outcome.step) == ("finished", 6)
    # Should the note that it has finished be lost, a step is trained, validated, and that is all.
    run.batches.clear()
    outcome = run.start(seconds=55)
    assert (outcome.state, outcome.step, len(run.batches)) == ("finished", 7, 1)
    assert run.snapshot().metrics["loss"] > 0


def test_a_time_limit_that_comes_while_updates_fail_waits_for_one_that_does_not(tmp_path):
    changes = {"training.max_bad_updates": 2, "training.steps": 30, "training.save_every": 2}
    run = Run(tmp_path, {**SHORT, **changes})
    seconds = Seconds(run)
    plain_step = run.on.train_step

    def train_step(state: Any, batch: Any) -> Any:
        if len(run.batches) in (4, 5):  # 40 seconds are over at the first of these
            state = dataclasses.replace(
                state, params=jax.tree.map(lambda x: x * np.nan, state.params)
            )
        return plain_step(state, batch)

    run.on = dataclasses.replace(run.on, train_step=train_step)
    outcome = run.start(seconds=40)
    assert seconds.validations == 1
    assert (outcome.state, outcome.step) == ("finished", 3)  # from the checkpoint at step 2 on
    assert run.snapshot().step == 3 and math.isfinite(run.snapshot().metrics["loss"])


def test_the_time_that_is_left_is_told(tmp_path):
    run = Run(tmp_path, {**SHORT, "training.steps": 900, "training.log_every": 1})
    Seconds(run)
    run.start(seconds=50)
    etas = [
        line["eta_seconds"]
        for line in read_metrics(run.folder / "metrics.jsonl")
        if line["kind"] == "train"
    ]
    assert len(etas) == 5 and etas[-1] <= 1e-9 < etas[0] < 50


def test_patience_ends_training_and_the_best_checkpoint_stays(tmp_path):
    changes = {"steps": 9, "validate_every": 1, "patience": 3, "keep_latest": 1}
    changes = {f"training.{name}": value for name, value in changes.items()}
    scores = iter([10, 12, 11, 11.9, 9])
    run = Run(
        tmp_path,
        {**changes, "training.keep_for_average": 1, **BLEU},
        decode=lambda params, step: {"bleu": next(scores)},
    )
    outcome = run.start()
    assert (outcome.state, outcome.step) == ("finished", 5)
    assert outcome.reason == "no better bleu in 3 validations; the best was 12 at step 2"
    assert run.steps() == [2, 5]
    assert run.snapshot(2).metrics["bleu"] == 12
    assert run.shown.count("best so far") == 2
    # A restart, should the note that it has finished be lost, does not train on.
    assert run.start() == outcome
    assert len(run.batches) == 5


def test_initial_parameters_are_a_checkpoint_and_not_kept(tmp_path):
    """Read once; neither here nor on the devices: training needs the room."""
    before = jax.tree.map(lambda leaf: leaf + 1, on_host(program().init().params))
    references: list[weakref.ref] = []

    def given() -> Any:
        # Not in one piece, so that none of them can become the device's own.
        params = jax.tree.map(lambda leaf: np.stack([leaf, leaf], axis=-1)[..., 0], before)
        references.extend(weakref.ref(leaf) for leaf in jax.tree.leaves(params))
        return params

    def step(state: Any, batch: Any) -> Any:
        gc.collect()
        assert references and not any(reference() is not None for reference in references)
        return program().train_step(state, batch)

    run = Run(tmp_path, {"training.steps": 2}, on=dataclasses.replace(program(), train_step=step))
    assert run.start(initial_params=given).step == 2 and run.steps() == [0, 2]
    start = run.snapshot(0)
    assert start.kind == "start", "which is not averaged"
    assert start.metrics == validation_loss(program(), VALID, before) | start.metrics
    assert_same(on_host((start.params, start.ema)), (before, before))
    assert all(np.all(np.asarray(leaf) == 0) for leaf in jax.tree.leaves(start.opt_state))
    assert start.position["position"] == {"epoch": 0, "window": 0, "index": 0}
    count = len(references)
    run.start(initial_params=given)
    assert len(references) == count, "the run has a checkpoint of its own"


def test_weights_that_training_makes_worse_stay_the_best(tmp_path):
    """Of another run, after which the first validation isn't the best only because it is the
    first."""
    scores = iter((12.0, 11.0, 10.0, 9.0))
    changes = {"training.steps": 8, "training.validate_every": 1, "training.patience": 3, **BLEU}
    run = Run(tmp_path, changes, decode=lambda params, step: {"bleu": next(scores)})
    outcome = run.start(initial_params=lambda: on_host(program().init().params))
    assert outcome.reason == "no better bleu in 3 validations; the best was 12 at step 0"
    assert select_step(tmp_path / "checkpoints", "best") == 0
    assert [line["step"] for line in run.log() if line["kind"] == "valid"] == [0, 1, 2, 3]


def test_a_report_counts_tokens_epochs_and_padding(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_MEASURED", 3)
    run = Run(tmp_path, {"training.steps": 8, "training.log_every": 4})
    run.start()
    lines = [line for line in run.log() if line["kind"] == "train"]
    for number, line in enumerate(lines):
        seen = run.batches[4 * number : 4 * number + 4]
        positions = sum(batch.src.size + batch.tgt_in.size for batch in seen)
        tokens = sum(int(batch.src_tokens + batch.tgt_tokens) for batch in seen)
        assert line["padding"] == pytest.approx(1 - tokens / positions)
        assert line["skipped"] == 0
        assert 0 < line["epoch"] < 1
    assert lines[1]["epoch"] == pytest.approx(2 * lines[0]["epoch"])
    # An untrained model makes nothing of its source, which is said after the warm-up.
    assert run.shown.count("step 8: the model ignores its source so far (source_gain") == 1
    shapes = len({batch.shape for batch in run.batches})
    assert run.shown.count("compiling ") == shapes and run.shown.count("validating...\n") == 1
    assert run.shown.count("\n") == len(run.log()) + shapes + 3
    assert re.search(r"^about 0:00:\d\d for the [345] steps left, at .* s each, ", run.shown, re.M)


def test_each_shape_s_compiling_is_said_once(tmp_path):
    run = Run(tmp_path, {"training.steps": 8, "training.log_every": 4})
    run.start()
    shapes = len({batch.shape for batch in run.batches})
    said = [line for line in run.shown.splitlines() if line.startswith("compiling")]
    assert said == [f"compiling {number} of 2..." for number in range(1, shapes + 1)]


def test_what_does_not_fit_is_named():
    model = {"encoder": {"w": np.zeros((2, 3)), "b": np.zeros(3)}, "only_here": np.zeros(1)}
    checkpoint = {"encoder": {"w": np.zeros((2, 4)), "b": np.zeros(3)}, "only_there": np.zeros(1)}
    with pytest.raises(StartError) as error:
        check_same_form(checkpoint, model, "runs/a")
    assert str(error.value) == (
        "runs/a: its weights do not fit this model: encoder/w: (2, 4) there, (2, 3) here; "
        "only_here: absent there, (1,) here; only_there: (1,) there, absent here"
    )
    many = {f"w{number}": np.zeros(1) for number in range(9)}
    with pytest.raises(StartError, match="; w4: absent there, .* here; and 4 more$"):
        check_same_form({}, many, "runs/a")
