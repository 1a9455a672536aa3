"""What a finished training shows, and what would help next."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flaxformer_mt.api import config_of, say
from flaxformer_mt.api.length import choose_length
from flaxformer_mt.config import ExperimentConfig, ScheduleConfig
from flaxformer_mt.config.batch_shapes import TrainingWork, repaid_shapes
from flaxformer_mt.config.kinds import PaperCurve
from flaxformer_mt.decoding.length_choice import is_to_be_chosen
from flaxformer_mt.rundir.cache import INDEX_FILES
from flaxformer_mt.rundir.checkpoint_choice import (
    best_by,
    finite_values,
    list_steps,
    ranked,
    without_rank,
)
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.metrics_log import Report, read_metrics
from flaxformer_mt.rundir.paths import document, exists

_NAMES = {"bleu": "BLEU", "chrf": "chrF", "loss": "loss"}
# By less than this a metric has hardly changed; a loss is in nats per token.
_HARDLY = {"bleu": 0.2, "chrf": 0.2, "loss": 0.01}
_CLEAR_FALL = 0.1  # nats per token, of the loss from the best step to the last
_RECENT = 0.2  # of the steps
_OTHER_LENGTH = 1.5  # times as long
_MUCH_COMPILING = 0.35  # of the time


def conclude(run: RunDirectory, config: ExperimentConfig, *, choose: bool) -> None:
    """Says what a finished training shows and, with `choose`, chooses what was left to the end.

    Raises what `choose_length` raises.
    """
    for sentence in advice(run, config):
        say(sentence)
    if choose:
        choose_length(run, config)
    elif is_to_be_chosen(config.decoding):
        say("search: `average` chooses how lengths are normalised (decoding.length_choice)")


def choose_if_missing(run: RunDirectory, config: ExperimentConfig) -> None:
    """For a finished run whose choice was interrupted. Raises what `choose_length` raises."""
    if is_to_be_chosen(config.decoding) and not exists(run.length_choice):
        choose_length(run, config_of(run))  # with what the run chose when it was created


def advice(run: RunDirectory, config: ExperimentConfig) -> Iterator[str]:
    """Sentences about a finished run with these settings. Raises RunDirectoryError."""
    metric = config.training.best_score
    reports = list(read_metrics(run.metrics))
    validations = {report["step"]: report for report in reports if report.get("kind") == "valid"}
    diverged_step = diverged_since(reports)
    if without_rank(validations, metric):
        metric = config.training.loss_score  # which then decides about checkpoints, too
    scores = finite_values(validations, metric)
    if diverged_step is not None:
        yield _divergence(diverged_step, validations, run, config)
    elif len(scores) > 1 and max(scores) > config.training.schedule.warmup_steps:
        # Minutes end a training before its steps.
        steps = max(scores) if config.training.minutes else config.training.steps
        losses = finite_values(validations, config.training.loss_score)
        falling = while_loss_falls(scores, metric, losses, steps=steps)
        yield falling or course(scores, metric, steps=steps)

    if exists(run.goodput):
        with document(run.goodput, "no advice about compiling") as account:
            yield from _compiling(account["seconds"], config)

    manifest = run.data / INDEX_FILES["data"]
    if exists(manifest):
        with document(manifest, "restore it from a copy") as content:
            yield from _lengths(content.get("lengths"))


def diverged_since(reports: Sequence[Report]) -> int | None:
    """The step since which no report of training, or none of validation, has a finite loss; None
    if the last of both have one."""
    steps = []
    for is_valid in (False, True):
        of_kind = [report for report in reports if (report.get("kind") == "valid") == is_valid]
        first_bad = None
        for report in reversed(of_kind):
            loss = report.get("loss")
            if not isinstance(loss, int | float) or math.isfinite(loss):
                break
            first_bad = report["step"]
        if first_bad is not None:
            steps.append(first_bad)
    return min(steps, default=None)


def _divergence(
    since: int, validations: Mapping[int, Report], run: RunDirectory, config: ExperimentConfig
) -> str:
    """That training has diverged, which checkpoint is good, and what would help."""
    checkpoint = _checkpoint_before(since, validations, run, config)
    clip_norm = config.training.optimizer.clip_norm
    lower_norm = clip_norm / 2 if clip_norm else 1.0
    return (
        f"training has diverged: the loss has not been finite since step {since:,}; {checkpoint}. "
        f"Train again in a new --workdir with a lower peak learning rate "
        f"({_lower_rate(config.training.schedule)}) or with gradient clipping "
        f"(--config.training.optimizer.clip_norm={lower_norm:g})"
    )


def _checkpoint_before(
    since: int, validations: Mapping[int, Report], run: RunDirectory, config: ExperimentConfig
) -> str:
    """Which checkpoint of before a divergence to use: the best, or else the newest."""
    earlier = {step for step in list_steps(run.checkpoints) if step < since}
    # A model whose loss is no number may still have a BLEU, of 0.
    finite = {step: validations[step] for step in finite_values(validations, "loss")}
    good = [step for step in ranked(finite, **best_by(config.training)) if step in earlier]
    if good:
        return f"checkpoint {good[0]:,} is the best before it (`--weights {good[0]}`)"
    if earlier:
        newest = max(earlier)
        return (
            f"checkpoint {newest:,}, not validated, is the newest before it (`--weights {newest}`)"
        )
    return "no checkpoint is older"


def _lower_rate(schedule: ScheduleConfig) -> str:
    """The override for half of the schedule's learning rate."""
    curve = schedule.curve
    if isinstance(curve, PaperCurve):
        return f"--config.training.schedule.factor={curve.factor / 2:g}"
    return f"--config.training.schedule.peak={curve.peak / 2:g}"


def _kind_and_name(metric: str) -> tuple[str, str]:
    """What a metric such as `bleu/SET` measures, and its name for people: `BLEU of SET`."""
    kind, slash, validation_set = metric.partition("/")
    return kind, f"{_NAMES[kind]} of {validation_set}" if slash else _NAMES[kind]


def while_loss_falls(
    scores: Mapping[int, float], metric: str, losses: Mapping[int, float], *, steps: int
) -> str | None:
    """Advice to go on, if BLEU or chrF got worse while the loss clearly fell to the end.

    A model that has just begun to write matches a word or two, so that its BLEU goes up and down.
    """
    kind, name = _kind_and_name(metric)
    best, last = max(scores, key=lambda step: (scores[step], -step)), max(scores)
    if kind == "loss" or last < steps or not {best, last} <= losses.keys():
        return None
    if best == last or losses[best] - losses[last] < _CLEAR_FALL:
        return None
    return (
        f"{name} was best at step {best:,} ({scores[best]:.2f}; {scores[last]:.2f} at step "
        f"{last:,}), but the loss still falls ({losses[best]:.2f} to {losses[last]:.2f}): the same "
        f"command with --config.training.steps={2 * steps} continues"
    )


def course(scores: Mapping[int, float], metric: str, *, steps: int) -> str:
    """What two or more validations' scores, by step, say about more of the `steps`.

    A training that ended before them had no patience left.
    """
    kind, name = _kind_and_name(metric)
    hardly = _HARDLY[kind]
    # Higher is better.
    ranks = {step: -score if kind == "loss" else score for step, score in scores.items()}
    best = max(ranks, key=lambda step: (ranks[step], -step))
    last = max(scores)

    before = _best_before_the_end(ranks)
    if last >= steps and ranks[best] - ranks[before] >= hardly and best > before:
        return (
            f"still improving ({scores[best] - scores[before]:+.2f} {name} from step {before:,} to "
            f"step {best:,}): the same command with --config.training.steps={2 * steps} continues"
        )
    since = [rank for step, rank in ranks.items() if step > best]
    if best <= before and ranks[best] - statistics.mean(since) >= hardly:
        return (
            f"best at step {best:,} ({scores[best]:.2f} {name}), worse since ({scores[last]:.2f} "
            f"at step {last:,}): a higher model.dropout or more text would help, more steps would "
            "not"
        )
    close = min(step for step in ranks if ranks[best] - ranks[step] < hardly)
    return (
        f"{name} has hardly changed since step {close:,} ({scores[close]:.2f}, best "
        f"{scores[best]:.2f}): more steps would gain little"
    )


def _best_before_the_end(ranks: Mapping[int, float]) -> int:
    """The best step of those before the last fifth: the last few differ by chance."""
    end = max(min(ranks), (1 - _RECENT) * max(ranks))
    return max((step for step in ranks if step <= end), key=lambda step: (ranks[step], -step))


def _compiling(seconds: Mapping[str, float], config: ExperimentConfig) -> Iterator[str]:
    """A sentence if compiling took much of the time, and fewer shapes of batches would do."""
    shapes = config.data.batch.max_shapes
    share = seconds.get("compile", 0) / max(1e-9, sum(seconds.values()))
    repaid = repaid_shapes(TrainingWork.of(config))
    if config.data.batch.form == "bucket" and share > _MUCH_COMPILING and repaid < shapes:
        yield (
            f"{100 * share:.0f}% of the time was compiling, for up to {shapes} shapes of batches: "
            f"a new run of this length needs {repaid} (--config.data.batch.max_shapes=0)"
        )


def _lengths(lengths: Mapping[str, Any] | None) -> Iterator[str]:
    """A sentence if validation text is of another length than training text."""
    if lengths is None:  # of an early manifest
        return
    train, valid = (lengths[split]["src"]["mean"] for split in ("train", "valid"))
    if max(train, valid) > _OTHER_LENGTH * min(train, valid):
        yield (
            f"validation text differs in length from training text: {valid:.0f} source tokens a "
            f"line, not {train:.0f}"
        )
