"""What is said at the end of training: whether more steps, or something else, would help."""

import json
import math

import pytest

from flaxformer_mt.api.advice import advice, course, while_loss_falls
from flaxformer_mt.config import default_config, freeze
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.metrics_log import MetricsLog


@pytest.mark.parametrize(
    ("scores", "metric", "expected"),
    [
        (
            {500: 18.9, 1000: 22.9},
            "bleu",
            "still improving (+4.00 BLEU from step 500 to step 1,000): the same command with "
            "--config.training.steps=2000 continues",
        ),
        (
            {500: 3.0, 1000: 2.5},
            "loss",
            "still improving (-0.50 loss from step 500 to step 1,000): the same command with "
            "--config.training.steps=2000 continues",
        ),
        (  # the last validation, soon after the best, is worse by chance
            {4320: 26.71, 4860: 26.92, 5400: 27.41, 5940: 27.74, 6000: 27.20},
            "bleu",
            "still improving (+1.03 BLEU from step 4,320 to step 5,940): the same command with "
            "--config.training.steps=2000 continues",
        ),
        (
            {500: 18.9, 1000: 22.92, 1500: 22.27, 2000: 22.02},
            "bleu",
            "best at step 1,000 (22.92 BLEU), worse since (22.02 at step 2,000): a higher "
            "model.dropout or more text would help, more steps would not",
        ),
        (
            {500: 2.0, 1000: 2.5},
            "loss",
            "best at step 500 (2.00 loss), worse since (2.50 at step 1,000): a higher "
            "model.dropout or more text would help, more steps would not",
        ),
        (
            {500: 18.9, 1000: 22.9, 1500: 23.0, 2000: 22.95},
            "bleu",
            "BLEU has hardly changed since step 1,000 (22.90, best 23.00): more steps would gain "
            "little",
        ),
    ],
)
def test_the_course_of_validation_says_what_would_help(scores, metric, expected):
    assert course(scores, metric, steps=1000) == expected


@pytest.fixture
def run(tmp_path):
    return RunDirectory(tmp_path)


def told(run, changes=()):
    config = default_config()
    config.training.steps = 40
    config.training.schedule.warmup_steps = 10
    config.update_from_flattened_dict(dict(changes))
    return list(advice(run, freeze(config, "tests")))


def test_a_training_without_patience_left_is_not_told_to_go_on():
    """With more steps, the same command would end at once."""
    scores = {7000: 30.0, 7644: 30.4, 8190: 30.3, 8736: 30.35, 9282: 30.3}
    expected = "BLEU has hardly changed since step 7,644"
    assert course(scores, "bleu", steps=12_000).startswith(expected)
    assert course(scores, "bleu", steps=9282).startswith("still improving")


def test_a_bleu_of_chance_is_not_believed_while_the_loss_falls():
    scores = {150: 1.87, 300: 1.31}
    assert while_loss_falls(scores, "bleu", {150: 4.40, 300: 3.82}, steps=300) == (
        "BLEU was best at step 150 (1.87; 1.31 at step 300), but the loss still falls (4.40 to "
        "3.82): the same command with --config.training.steps=600 continues"
    )
    for losses in ({150: 4.40, 300: 4.35}, {150: 3.82, 300: 4.40}, {}):
        assert while_loss_falls(scores, "bleu", losses, steps=300) is None
    assert while_loss_falls(scores, "bleu", {150: 4.40, 300: 3.82}, steps=400) is None
    assert while_loss_falls({150: 1.0, 300: 2.0}, "bleu", {150: 4, 300: 3}, steps=300) is None
    assert while_loss_falls({150: 4, 300: 3}, "loss", {150: 4, 300: 3}, steps=300) is None


def test_a_training_that_ends_in_its_warmup_is_not_judged(run):
    reports = [{"step": step, "kind": "valid", "bleu": 15.0 + step} for step in (0, 9)]
    run.metrics.write_text("".join(json.dumps(report) + "\n" for report in reports))
    assert told(run) == []


def test_validations_of_all_starts_count(run):
    reports = [
        {"step": 10, "loss": 9.5},  # as early versions wrote it
        {"step": 20, "kind": "train", "loss": 9.0},
        {"step": 20, "kind": "valid", "bleu": 10.0},
        {"step": 40, "kind": "valid", "bleu": 11.0},
    ]
    assert told(run) == []
    run.metrics.write_text("".join(json.dumps(report) + "\n" for report in reports[:3]))
    assert told(run) == []  # one validation shows no course
    run.metrics.write_text("".join(json.dumps(report) + "\n" for report in reports))
    (said,) = told(run)
    assert said.startswith("still improving (+1.00 BLEU from step 20 to step 40)")
    assert "training.steps=80" in said


def test_a_model_that_has_learnt_nothing_is_judged_by_its_loss(run):
    """All BLEU below 1 is chance."""
    reports = [
        {"step": step, "kind": "valid", "bleu": bleu, "loss": loss}
        for step, bleu, loss in ((20, 0.0, 8.0), (40, 0.1, 7.0))
    ]
    run.metrics.write_text("".join(json.dumps(report) + "\n" for report in reports))
    (said,) = told(run)
    assert said.startswith("still improving (-1.00 loss from step 20 to step 40)")


def written(run, *reports):
    """Reports as training writes them, and a checkpoint for each validation."""
    with MetricsLog(run.metrics) as log:
        for report in reports:
            log.write(report["step"], report)
            if report["kind"] == "valid":
                (run.checkpoints / str(report["step"])).mkdir(parents=True)


GOOD = (
    {"step": 20, "kind": "valid", "loss": 4.0, "bleu": 12.0},
    {"step": 40, "kind": "train", "loss": 3.0},
    {"step": 40, "kind": "valid", "loss": 4.5, "bleu": 10.0},
)


@pytest.mark.parametrize(
    ("reports", "since"),
    [
        ([{"step": 60, "kind": "valid", "loss": math.nan, "bleu": 0.0}], 60),
        ([{"step": 60, "kind": "valid", "loss": math.inf, "bleu": math.nan}], 60),
        (
            [
                {"step": 50, "kind": "train", "loss": math.nan},
                {"step": 60, "kind": "train", "loss": math.nan},
                {"step": 60, "kind": "valid", "loss": math.nan},
            ],
            50,
        ),
        ([{"step": 50, "kind": "train", "loss": math.nan}], 50),
    ],
)
def test_a_loss_that_is_not_finite_is_named_with_the_best_checkpoint_before_it(run, reports, since):
    written(run, *GOOD, *reports)
    assert told(run) == [
        f"training has diverged: the loss has not been finite since step {since}; checkpoint 20 "
        "is the best before it (`--weights 20`). Train again in a new --workdir with a lower peak "
        "learning rate (--config.training.schedule.factor=0.5) or with gradient clipping "
        "(--config.training.optimizer.clip_norm=1)"
    ]


def test_a_loss_that_is_finite_again_is_no_divergence(run):
    lost = {"step": 30, "kind": "train", "loss": math.nan}
    written(run, GOOD[0], lost, *GOOD[1:])
    (said,) = told(run)
    assert said.startswith("best at step 20 (12.00 BLEU), worse since")


def test_a_checkpoint_that_is_gone_is_not_named(run):
    written(run, *GOOD, {"step": 60, "kind": "valid", "loss": math.nan})
    (run.checkpoints / "20").rmdir()
    (said,) = told(run)
    assert "checkpoint 40 is the best before it (`--weights 40`)" in said


def test_without_a_validated_checkpoint_the_newest_before_it_is_named(run):
    written(run, {"step": 60, "kind": "valid", "loss": math.nan, "bleu": 0.0})
    (run.checkpoints / "40").mkdir()
    (said,) = told(run)
    assert "checkpoint 40, not validated, is the newest before it (`--weights 40`)" in said


def test_without_a_checkpoint_none_is_named(run):
    written(run, {"step": 20, "kind": "valid", "loss": math.nan, "bleu": 0.0})
    (said,) = told(run)
    assert "since step 20; no checkpoint is older." in said


def test_what_is_set_already_is_lowered(run):
    written(run, *GOOD, {"step": 60, "kind": "valid", "loss": math.nan})
    changes = {"training.optimizer.clip_norm": 5.0}
    changes |= {"training.schedule.kind": "peak", "training.schedule.peak": 0.004}
    (said,) = told(run, changes)
    assert "(--config.training.schedule.peak=0.002)" in said
    assert "(--config.training.optimizer.clip_norm=2.5)" in said


@pytest.mark.parametrize(("valid", "count"), [(10.0, 0), (15.0, 0), (16.0, 1), (6.0, 1)])
def test_validation_text_of_another_length_is_named(run, valid, count):
    run.data.mkdir()
    lengths = {"train": {"src": {"mean": 10.0}}, "valid": {"src": {"mean": valid}}}
    (run.data / "manifest.json").write_text(json.dumps({"lengths": lengths}))
    said = told(run)
    assert len(said) == count
    assert all(f"{valid:.0f} source tokens a line, not 10" in line for line in said)


def test_much_compiling_is_told_where_fewer_shapes_would_do(run):
    small = {"model.d_model": 16, "model.d_ff": 32, "data.batch.tokens": 256}
    small |= {"model.d_k": 4, "model.d_v": 4, "model.num_heads": 4}

    def with_seconds(changes=(), **seconds):
        run.goodput.write_text(json.dumps({"seconds": seconds}))
        return told(run, small | dict(changes))

    (said,) = with_seconds(compile=60.0, steps=30.0, validation=10.0)
    assert said.startswith("60% of the time was compiling, for up to 16 shapes of batches: ")
    assert said.endswith("length needs 2 (--config.data.batch.max_shapes=0)")
    assert with_seconds(compile=30.0, steps=60.0, validation=10.0) == []
    assert with_seconds({"data.batch.max_shapes": 2}, compile=60.0, steps=40.0) == []
    assert with_seconds({"data.batch.form": "pack"}, compile=60.0, steps=40.0) == []
    assert with_seconds() == []  # of a run that has done nothing yet
