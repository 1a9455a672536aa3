"""Diverse n-best: what the groups of a search are for, and how their outputs are put together."""

from __future__ import annotations

import pytest

from flaxformer_mt.decoding import batches
from flaxformer_mt.decoding.batches import Decoded
from flaxformer_mt.decoding.sampling import Sampling
from tests.decoding.examples import decoded, sentences

SOURCES = sentences(8, seed=5)


def searched(groups, n_best, **changes):
    wanted = {"diverse_groups": groups, "diversity": 5.0, **changes}
    return decoded(SOURCES, seed=5, n_best=n_best, beam_size=6, **wanted)


def test_groups_give_different_outputs_each_once_and_best_first():
    def first_tokens(groups):
        found = searched(groups, 6)
        for hypotheses in found:
            scores = [each.score for each in hypotheses]
            assert scores == sorted(scores, reverse=True)
            assert len({each.tokens for each in hypotheses}) == len(hypotheses)
        return sum(len({each.tokens[:1] for each in hypotheses}) for hypotheses in found)

    assert first_tokens(6) > first_tokens(1)
    with pytest.raises(ValueError, match="beam_size = 6 must be divisible by the 4 groups"):
        first_tokens(4)


def test_as_few_outputs_as_groups_or_fewer_come_from_different_groups():
    # The first group is a search without groups, with its share of the beam.
    first = decoded(SOURCES, seed=5, beam_size=2, length_penalty=0.0)
    for found, (best,) in zip(searched(3, 2, length_penalty=0.0), first, strict=True):
        assert len({each.tokens for each in found}) == 2
        assert best.tokens in {each.tokens for each in found} or found[0].score > best.score
    one, two = (
        sum(
            len({each.tokens[:1] for each in found}) for found in searched(n, 2, length_penalty=0.0)
        )
        for n in (1, 2)
    )
    assert two > one


@pytest.mark.parametrize(
    "groups, count, expected",
    [
        # The best of all is its group's turn: the next is of the other group.
        ([{"a": -1.0, "b": -1.1}, {"c": -2.0, "d": -3.0}], 2, "ac"),
        ([{"c": -2.0, "d": -3.0}, {"a": -1.0, "b": -1.1}], 2, "ac"),
        # What another group has come to as well costs a group no turn.
        ([{"a": -1.0, "b": -1.1}, {"a": -1.5, "c": -2.0}, {"e": -4.0}], 3, "ace"),
        ([{"a": -1.0, "b": -1.1}, {"a": -1.5}], 3, "ab"),
        ([{}, {"a": -1.0}], 2, "a"),
    ],
)
def test_groups_take_turns(groups, count, expected):
    made = [
        [
            Decoded(tokens=(ord(name),), log_prob=score, score=score, at_limit=False)
            for name, score in one.items()
        ]
        for one in groups
    ]
    found = batches._by_turns(made, count)
    assert "".join(chr(each.tokens[0]) for each in found) == expected


def test_draws_have_no_groups():
    drawn = [
        searched(groups, 2, sampling=Sampling(seed=3), diversity=diversity)
        for groups, diversity in ((3, 5.0), (1, 0.0))
    ]
    assert drawn[0] == drawn[1]
