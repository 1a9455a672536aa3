"""Statistics of heads on maps small enough to be done by hand."""

import math

import numpy as np
import pytest

from flaxformer_mt.attention import Kind
from flaxformer_mt.figures.statistics import measure, offsets, pronoun_places, pronouns_of


def test_pronouns_begin_where_their_word_does():
    pieces = ("▁It", "'", "s", "▁her", "s", "▁her", "▁item", ",", "▁it", ",", "</s>")
    assert pronoun_places(pieces, pronouns_of("en")) == (0, 3, 5, 8)
    assert pronoun_places(pieces, pronouns_of("xx")) == ()
    assert pronouns_of("de-AT") == pronouns_of("de")


# Three pieces and the end mark, whose own query does not count.
ENCODER = [[0.5, 0.25, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.25, 0.25], [0.0, 0, 0, 1]]
# The begin mark and three pieces; the first query has no choice, the end mark's does not count.
DECODER = [[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25, 0.5, 0.25, 0.0], [0.0, 0, 0, 1]]


def of_one(weights: object, kind: Kind, **settings: object) -> dict[str, float]:
    sums = measure(np.array(weights)[None, None], kind, **settings)
    return {name: float(value[0, 0]) for name, value in sums.values().items()}


def test_statistics_of_an_encoder_s_head():
    assert of_one(ENCODER, "encoder", far=2, pronouns=(2,)) == pytest.approx(
        {
            "distance": (0.25 + 2 * 0.25 + 1 + 2 * 0.5) / 2.75,
            "entropy": (1.5 + 0 + 1.5) / 3,
            "diagonal": (0.5 + 0.25) / 3,
            "previous": 1 / 3,
            "next": 0.25 / 3,
            "mark": 0.25 / 3,
            "far": (0.25 + 0.5) / 3,
            "reach": (0.25 + 0.5) / 3,
            "sharpness": (0.5 + 1 + 0.5) / 3,
            "variety": 1.5,  # a half at -1, a quarter at 0 and at -2
            "structure": 1.0,
            "anaphora": 0.5,
        }
    )


def test_statistics_of_a_decoder_s_head():
    statistics = of_one(DECODER, "decoder", far=2)
    expected = {"entropy": 2.5 / 2, "mark": 0.75 / 2, "previous": 0.75 / 2, "far": 0.5 / 2}
    expected |= {"diagonal": 0, "next": 0, "distance": (0.5 + 2 * 0.5 + 0.25) / 1.25}
    assert {name: statistics[name] for name in expected} == pytest.approx(expected)
    assert of_one(DECODER, "decoder", pronouns=(2,))["anaphora"] == 0.5
    assert math.isnan(statistics["anaphora"])


def test_a_head_along_the_diagonal_of_two_lengths_has_no_distance():
    assert [int(np.flatnonzero(row == 0)[0]) for row in offsets("cross", 3, 5)] == [0, 2, 4]
    weights = np.zeros((4, 6))
    weights[[0, 1, 2, 3], [0, 2, 4, 5]] = 1
    statistics = of_one(weights, "cross", pronouns=(1,))
    assert statistics["diagonal"] == 1
    assert statistics["distance"] == statistics["mark"] == statistics["variety"] == 0
    assert math.isnan(statistics["anaphora"])


def test_a_head_that_looks_everywhere_is_far_and_reaches_nothing():
    statistics = of_one(np.full((13, 13), 1 / 13), "encoder", far=5)
    assert statistics["entropy"] == pytest.approx(math.log2(13))
    assert statistics["far"] > 0.3 and statistics["reach"] == pytest.approx(1 / 13)


def test_an_antecedent_is_neither_the_neighbour_nor_a_comma():
    assert of_one(ENCODER, "encoder", pronouns=(1,))["anaphora"] == 0
    assert of_one(ENCODER, "encoder", pronouns=(2,), punctuation=(0,))["anaphora"] == 0
