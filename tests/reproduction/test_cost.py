"""Costs by formula and by a run's own tokens."""

from __future__ import annotations

import pytest

from flaxformer_mt.config import load_config
from flaxformer_mt.model.flops import shape_flops
from flaxformer_mt.reproduction.cost import (
    measured_flops,
    planned_flops,
    planned_parameters,
    trained_tokens,
)


def test_planned_flops_are_those_of_full_batches():
    config = load_config("wmt14_en_de:big")
    step = shape_flops(config.model, 37_000, rows=1000, src_length=25, tgt_length=25)
    assert planned_flops(config) == pytest.approx(300_000 * step)
    assert planned_parameters(config) == pytest.approx(214.2e6, rel=1e-3)


def test_tokens_are_rates_times_the_steps_since_the_last_report_and_count_once():
    reports = [
        {"kind": "train", "step": 10, "seconds_per_step": 2.0, "src": 50, "tgt": 60},
        {"kind": "valid", "step": 10},
        {"kind": "train", "step": 14, "seconds_per_step": 0.5, "src": 100, "tgt": 10},
    ]
    named = [{f"{k}_tokens_per_second" if k in ("src", "tgt") else k: v for k, v in one.items()}
             for one in reports]  # fmt: skip
    assert trained_tokens(named) == {"src": 10 * 2 * 50 + 4 * 0.5 * 100, "tgt": 1200 + 20}
    assert trained_tokens([*named, *named]) == trained_tokens(named)
    assert trained_tokens([]) == {"src": 0, "tgt": 0}


def test_a_run_without_padding_costs_what_was_planned():
    config = load_config("table3:base")
    tokens = dict.fromkeys(("src", "tgt"), 25_000 * 100_000)
    lengths = {"src": 25.0, "tgt": 25.0}
    found = measured_flops(config, 37_000, tokens=tokens, lengths=lengths)
    assert found == pytest.approx(planned_flops(config))
