"""`training_speed`: the batches that contestants get, and the arithmetic of their reports."""

import numpy as np
import pytest

from benchmarks.learning_curves import table
from benchmarks.training_report import (
    TOLERANCE,
    Disqualified,
    Measured,
    check_parameters,
    ratio,
    workload_metrics,
)
from benchmarks.training_workloads import (
    Work,
    real,
    synthetic,
    work_of,
)
from flaxformer_mt.config import load_config
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD
from flaxformer_mt.model.flops import shape_flops

SHAPE = Shape(4, 6, 5)


def test_synthetic_batches_have_no_padding_and_real_ones_are_the_first_that_train_sees(tmp_path):
    first, second = synthetic(SHAPE, 50, 2)
    assert first.shape == SHAPE
    assert (first.src[:, -1] == EOS).all() and (first.tgt_out[:, -1] == EOS).all()
    assert (first.tgt_in[:, 0] == BOS).all() and (
        first.tgt_in[:, 1:] == first.tgt_out[:, :-1]
    ).all()
    assert first.src[:, :-1].min() > 3 and first.src.max() < 50
    assert not np.array_equal(first.src, second.src)
    work = work_of(load_config("quickstart"), 50, [first, second])
    assert (work.tgt_tokens, work.padding) == (2 * 4 * 5, 0.0)
    expected = shape_flops(load_config("quickstart").model, 50, rows=4, src_length=6, tgt_length=5)
    assert work.flops == pytest.approx(2 * expected)
    config = load_config("quickstart", ["data.train.grammar.size=300", "data.batch.tokens=512"])
    batches, vocabulary = real(config, tmp_path, steps=3)
    assert len(batches) == 3 and vocabulary == config.data.vocabulary.size
    for batch in batches:
        assert (batch.src_segment_ids[:, 0] > 0).all()
    work = work_of(config, vocabulary, batches)
    assert 0 < work.padding < 0.5
    assert work.tgt_tokens == sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
    by_tokens, _ = real(config, tmp_path, tokens=work.tgt_tokens)
    for one, other in zip(batches, by_tokens, strict=True):
        assert np.array_equal(one.src, other.src)


WORK = Work(vocabulary=100, steps=4, tgt_tokens=1000, padding=0.25, flops=8e9)


def measured(*seconds: float, bfloat16: bool = False) -> Measured:
    return Measured(
        **{"bfloat16": bfloat16, "setup": "a package, a device", "parameters": 123},
        **{"cold_seconds": 9.0, "warm_seconds": [3.0, 2.0, 4.0], "run_seconds": list(seconds)},
        peak_bytes=5 * 2**20,
    )


def test_rates_shares_and_times_of_a_contestant():
    found = {"ours": measured(2.0, 1.0, 4.0), "peer": measured(4.0, 4.0, 5.0, bfloat16=True)}
    metrics, signatures = workload_metrics("toy", WORK, found, {"float32": 16e9, "bfloat16": 40e9})
    expected = {
        "ours_tokens_per_second": 500,
        "ours_tokens_per_second_lowest": 250,
        "ours_tokens_per_second_highest": 1000,
        # 8 GFLOP in two seconds, in four.
        "ours_share_of_ceiling": 4 / 16,
        "peer_share_of_ceiling": 2 / 40,
        "ours_warm_first_step_seconds": 3.0,
        "ours_cold_first_step_seconds": 9.0,
        "ours_peak_memory_mib": 5,
        "gflops_a_token": 0.008,
        "padding": 0.25,
        "ours_times_peer": 2.0,
    }
    for name, value in expected.items():
        assert metrics[f"toy_{name}"] == pytest.approx(value), name
    assert signatures["toy_peer_tokens_per_second"] == "a package, a device"
    # A machine that is slow in one round slows both, and changes no ratio.
    assert ratio([100, 10, 100], [50, 5, 50]) == 2
    assert ratio([100, 10, 30], [50, 5, 30]) == 2


def test_another_model_is_disqualified():
    at = round(1_000_000 * (1 + TOLERANCE))
    for count in (1_000_000, at, 2_000_000 - at):
        check_parameters("peer", count, 1_000_000)
    for count in (at + 1, 2_000_000 - at - 1, 0):
        with pytest.raises(Disqualified, match=r"peer has [\d,]+ parameters, .* of the 1,000,000"):
            check_parameters("peer", count, 1_000_000)


TOKENS = np.cumsum([10] * 90)
FALLING = [9 - step / 30 for step in range(90)]


def test_losses_are_compared_at_the_same_numbers_of_tokens():
    later = [loss + 0.5 for loss in FALLING]
    metrics, signatures = table(
        TOKENS, {"ours": FALLING, "peer": later}, {"ours": "A", "peer": "B"}
    )
    assert (metrics["steps"], metrics["target_tokens"]) == (90, 900)
    assert metrics["ours_loss_after_3_thirds"] == pytest.approx(np.mean(FALLING[70:]))
    assert metrics["ours_loss_after_1_thirds"] == pytest.approx(np.mean(FALLING[10:30]))
    assert metrics["loss_below_peer"] == pytest.approx(0.5)
    assert signatures["peer_loss_after_2_thirds"] == "B"
