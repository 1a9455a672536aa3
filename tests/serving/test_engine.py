"""Sizes of batches, and what is done with those that are not full."""

from unittest import mock

import pytest

from flaxformer_mt.decoding.errors import DecodingError, OverlongError, TargetError
from flaxformer_mt.serving.access import Refusal
from flaxformer_mt.serving.engine import ATTENTION, Engine, Key, QueuedSentence
from flaxformer_mt.serving.requests import AttentionRequest
from tests.serving.stand_in import StandIn, reversed_words

BEST, WIDE = Key(1), Key(4)


def engine(largest, **options):
    return Engine(StandIn(), **{"widest": WIDE.n_best, "largest": largest, **options})


def test_what_is_taken_fills_at_least_half_of_a_batch():
    for waiting in range(1, 200):
        for largest in (1, 2, 5, 16, 64, 100):
            batching = engine(largest)
            size = batching.take(BEST, waiting)
            assert 1 <= size <= min(waiting, largest)
            compiled = min(rows for rows in batching.sizes(BEST) if rows >= size)
            assert compiled <= 2 * size


def test_a_batch_is_filled_up_and_its_filling_left_out():
    batching = engine(16)
    texts = [f"sentence {number}" for number in range(9)]
    answers = batching.run(BEST, [QueuedSentence(text) for text in texts])
    assert [answer.translation.text for answer in answers] == [
        reversed_words(text) for text in texts
    ]
    assert batching.translator.calls == [(texts + texts[-1:] * 7, 1)]


def test_a_program_that_compiles_nothing_gets_no_filling():
    batching = engine(16)
    batching.translator.runtime = "another program"
    texts = [f"sentence {number}" for number in range(9)]
    batching.run(BEST, [QueuedSentence(text) for text in texts])
    assert batching.translator.calls == [(texts, 1)]


def test_a_diverse_search_for_fewer_is_another_one():
    diverse = engine(16, diverse=True)
    keys = [Key(count) for count in (1, 2, 3, 4)]
    assert [diverse.key_of(count) for count in (1, 2, 3, 4)] == diverse.searches() == keys
    assert engine(16).searches() == [BEST, WIDE]
    assert engine(16, widest=1).searches() == [BEST]


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (OverlongError(0, "40 tokens"), True),
        (TargetError(0, "token 1"), True),
        (ValueError("shapes differ"), False),
        (DecodingError("not a number"), False),
    ],
)
def test_only_a_pair_that_the_model_cannot_take_is_refused(monkeypatch, error, refused):
    batching = engine(16)
    monkeypatch.setattr(batching.translator, "attend", mock.Mock(side_effect=error))
    with pytest.raises(Refusal if refused else ValueError, match=str(error)) as raised:
        batching.run(ATTENTION, [AttentionRequest(text="a b", layer=0)])
    assert (raised.value is error) != refused, "whatever else goes wrong is no client's fault"
