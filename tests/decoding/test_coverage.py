"""The coverage penalty: of the attention that a hypothesis has paid to its source."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flaxformer_mt.decoding.search import coverage_penalty, length_penalty
from flaxformer_mt.model.stacks import aligning_layer
from tests.decoding.examples import CONFIG, as_part, decoded, forcing, sentences, tiny

BETA = 3.0


def test_it_is_the_formula():
    assert float(coverage_penalty(np.array([0.5, 1.0, 2.5, 0.2]))) == pytest.approx(
        math.log(0.5) + math.log(0.2)
    )
    assert math.isfinite(float(coverage_penalty(np.zeros(3))))


def searched(beta: float, sources):
    return decoded(sources, seed=3, n_best=4, coverage_penalty=beta)


def parts_of(sources, found):
    return [
        as_part(source[:-1], each.tokens)
        for source, hypotheses in zip(sources, found, strict=True)
        for each in hypotheses
    ]


def covered(sources, found) -> np.ndarray:
    """The coverage penalty of each hypothesis, by the formula, of one pass over it."""
    model, params = tiny(seed=3)
    weights = forcing(model, params).cross_weights(
        parts_of(sources, found), aligning_layer(model.config)
    )
    return np.array([np.log(np.clip(own.sum(axis=0), 1e-6, 1)).sum() for own in weights])


def test_scores_hold_the_attention_of_the_whole_translation():
    """Through compaction and cache growth, and as forced decoding has it."""
    sources = sentences(9, seed=1)
    found = searched(BETA, sources)
    flat = [each for hypotheses in found for each in hypotheses]
    lines = [[part] for part in parts_of(sources, found)]
    forced = forcing(*tiny(seed=3), coverage_penalty=BETA).score(lines)
    missing = covered(sources, found)
    for each, lacks, scored in zip(flat, missing, forced, strict=True):
        plain = each.log_prob / length_penalty(len(each.tokens) + 1, CONFIG.length_penalty)
        assert each.score == pytest.approx(plain + BETA * lacks, abs=2e-5)
        assert each.score == pytest.approx(scored.score, abs=2e-5)
    assert min(missing) < -0.5
    for hypotheses in found:
        scores = [each.score for each in hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_it_chooses_and_without_it_nothing_changes():
    sources = sentences(12, seed=2)
    without, little, much = (
        [found[:1] for found in searched(beta, sources)] for beta in (0.0, 1e-7, BETA)
    )
    assert [each[0].tokens for each in without] == [each[0].tokens for each in little]
    assert [each[0].tokens for each in without] != [each[0].tokens for each in much]
    assert covered(sources, much).sum() > covered(sources, without).sum() + 1
