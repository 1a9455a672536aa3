"""Hypotheses of a line's pieces, joined into those of the line."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.config import DecodingConfig, VocabularyConfig
from flaxformer_mt.data.vocabulary import Vocabulary, train
from flaxformer_mt.decoding.decode import Decoded
from flaxformer_mt.decoding.search import length_penalty
from flaxformer_mt.decoding.split import Piece
from flaxformer_mt.decoding.translation import joined


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return train(["ein hund rennt heim", "die katze schläft"] * 9, VocabularyConfig(size=30))


def decoded(log_prob: float, length: int, at_limit: bool, alpha: float) -> Decoded:
    score = log_prob / float(length_penalty(length + 1, alpha))
    return Decoded(tokens=(5,) * length, log_prob=log_prob, score=score, at_limit=at_limit)


@given(
    st.lists(
        st.lists(st.tuples(st.floats(-20, -0.1), st.integers(0, 8), st.booleans()), min_size=3),
        min_size=2,
        max_size=3,
    ),
    st.floats(0, 2),
)
def test_the_best_comes_first_and_says_whether_it_is_at_its_limit(vocabulary, pieces, alpha):
    """The pieces' first ones need not make the best whole: the penalty is of the whole length."""
    config = dataclasses.replace(DecodingConfig(), length_penalty=alpha)
    each = [
        sorted((decoded(*one, alpha) for one in piece), key=lambda one: -one.score)
        for piece in pieces
    ]
    found = joined([Piece("x", " ")] * len(pieces), each, vocabulary, config)
    scores = [hypothesis.score for hypothesis in found.hypotheses]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == min(map(len, pieces))
    best = max(
        range(len(scores)),
        key=lambda n: (
            sum(piece[n].log_prob for piece in each)
            / length_penalty(sum(len(piece[n].tokens) + 1 for piece in each), alpha)
        ),
    )
    assert found.hypotheses[0].log_prob == sum(piece[best].log_prob for piece in each)
    assert found.at_limit == any(piece[best].at_limit for piece in each)


def test_of_one_piece_the_searchs_own_scores_are_kept(vocabulary):
    each = [[decoded(-1.0, 2, True, 0.6), decoded(-2.0, 2, False, 0.6)]]
    found = joined([Piece("x", "")], each, vocabulary, DecodingConfig())
    assert [hypothesis.score for hypothesis in found.hypotheses] == [one.score for one in each[0]]
    assert found.at_limit and not found.split
