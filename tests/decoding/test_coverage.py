"""The coverage penalty: of the attention that a hypothesis has paid to its source."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from flaxformer_mt.decoding.attention_weights import cross_weights
from flaxformer_mt.decoding.decode import decode_ids
from flaxformer_mt.decoding.forced import score_parts
from flaxformer_mt.decoding.search import coverage_penalty, length_penalty
from flaxformer_mt.decoding.segments import Part
from flaxformer_mt.model.stacks import aligning_layer
from flaxformer_mt.parallel import local_mesh
from tests.decoding.examples import CONFIG, sentences, tiny

BETA = 3.0


def test_it_is_the_formula():
    assert float(coverage_penalty(np.array([0.5, 1.0, 2.5, 0.2]))) == pytest.approx(
        math.log(0.5) + math.log(0.2)
    )
    assert math.isfinite(float(coverage_penalty(np.zeros(3))))


def decoded(beta: float, sources, **changes):
    model, params = tiny(seed=3)
    config = dataclasses.replace(CONFIG, coverage_penalty=beta, **changes)
    return decode_ids((params,), (model,), sources, config, n_best=4)


def parts_of(sources, found) -> list[Part]:
    return [
        Part(src=tuple(source[:-1]), tgt=each.tokens, src_text="", tgt_text="", glue="")
        for source, hypotheses in zip(sources, found, strict=True)
        for each in hypotheses
    ]


def covered(sources, found) -> np.ndarray:
    """The coverage penalty of each hypothesis, by the formula, of one pass over it."""
    model, params = tiny(seed=3)
    weights = cross_weights(
        params,
        model,
        parts_of(sources, found),
        layer=aligning_layer(model.config),
        batch_tokens=2048,
        mesh=local_mesh(),
    )
    return np.array([np.log(np.clip(own.sum(axis=0), 1e-6, 1)).sum() for own in weights])


def test_scores_hold_the_attention_of_the_whole_translation():
    """Through compaction and cache growth, and as forced decoding has it."""
    model, params = tiny(seed=3)
    sources = sentences(9, seed=1)
    found = decoded(BETA, sources)
    parts = parts_of(sources, found)
    flat = [each for hypotheses in found for each in hypotheses]
    forced = score_parts(
        params,
        model,
        [[part] for part in parts],
        dataclasses.replace(CONFIG, coverage_penalty=BETA),
        mesh=local_mesh(),
    )
    missing = covered(sources, found)
    for each, lacks, scored in zip(flat, missing, forced, strict=True):
        plain = each.log_prob / length_penalty(len(each.tokens) + 1, CONFIG.length_penalty)
        assert each.score == pytest.approx(plain + BETA * lacks, abs=2e-5)
        assert each.score == pytest.approx(scored.score, abs=2e-5)
    assert min(missing) < -0.5
    for hypotheses in found:
        assert [each.score for each in hypotheses] == sorted(
            (each.score for each in hypotheses), reverse=True
        )


def test_it_chooses_and_without_it_nothing_changes():
    sources = sentences(12, seed=2)
    without, little, much = (
        [found[:1] for found in decoded(beta, sources)] for beta in (0.0, 1e-7, BETA)
    )
    assert [each[0].tokens for each in without] == [each[0].tokens for each in little]
    assert [each[0].tokens for each in without] != [each[0].tokens for each in much]
    assert covered(sources, much).sum() > covered(sources, without).sum() + 1
