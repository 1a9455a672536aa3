"""Sizes of batches, and what is done with those that are not full."""

from __future__ import annotations

from typing import Any

import pytest

from flaxformer_mt.decoding.batches import DecodingError
from flaxformer_mt.decoding.segments import OverlongError, TargetError
from flaxformer_mt.serving.access import Refusal
from flaxformer_mt.serving.engine import ATTENTION, Engine, Sentence
from flaxformer_mt.serving.requests import AttentionRequest
from tests.serving.stand_in import StandIn, reversed_words

BEST, WIDE = 1, 4


def engine(largest: int) -> Engine:
    return Engine(StandIn(), widest=4, largest=largest)


@pytest.mark.parametrize(
    ("largest", "sizes", "wide"),
    [(1, [1], [1]), (3, [1, 3], [1, 3]), (16, [1, 4, 16], [1, 4]), (40, [1, 4, 16, 40], [1, 4])],
)
def test_sizes_are_few(largest: int, sizes: list[int], wide: list[int]) -> None:
    assert engine(largest).sizes(BEST) == sizes
    assert engine(largest).sizes(WIDE) == wide
    assert engine(largest).sizes(ATTENTION) == [1]


def test_what_is_taken_fills_at_least_half_of_a_batch() -> None:
    made = engine(16)
    taken = [made.take(BEST, waiting) for waiting in range(1, 20)]
    assert taken == [1, 2, 3, 4, 4, 4, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16, 16, 16]
    for waiting in range(1, 200):
        for largest in (1, 2, 5, 16, 64, 100):
            made = engine(largest)
            size = made.take(BEST, waiting)
            assert 1 <= size <= min(waiting, largest)
            assert min(each for each in made.sizes(BEST) if each >= size) <= 2 * size


def test_a_batch_is_filled_up_and_its_filling_left_out() -> None:
    translator = StandIn()
    made = Engine(translator, widest=4, largest=16)
    texts = [f"sentence {number}" for number in range(9)]
    found = made.run(BEST, [Sentence(text) for text in texts])
    assert [each.translation.text for each in found] == [reversed_words(text) for text in texts]
    ((lines, _),) = translator.calls
    assert lines == texts + texts[-1:] * 7


def test_a_diverse_search_for_fewer_is_another_one() -> None:
    made = Engine(StandIn(), widest=4, largest=16, diverse=True)
    assert [made.key_of(n) for n in (1, 2, 3, 4)] == made.searches() == [1, 2, 3, 4]
    assert engine(16).searches() == [BEST, WIDE]
    assert Engine(StandIn(), widest=1, largest=16).searches() == [BEST]


class Broken(StandIn):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def attend(self, src: str, tgt: str) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (OverlongError(0, "40 tokens"), True),
        (TargetError(0, "token 1"), True),
        (ValueError("shapes differ"), False),
        (DecodingError("not a number"), False),
    ],
)
def test_only_a_pair_that_the_model_cannot_take_is_refused(error: Exception, refused: bool) -> None:
    made = Engine(Broken(error), widest=4, largest=16)
    with pytest.raises(Refusal if refused else ValueError, match=str(error)) as raised:
        made.run(ATTENTION, [AttentionRequest(text="a b", layer=0)])
    assert (raised.value is error) != refused, "whatever else goes wrong is no client's fault"


def test_a_code_is_read_and_not_shown() -> None:
    translator = StandIn()
    made = Engine(translator, widest=4, largest=1)
    (found,) = made.run(BEST, [Sentence("the dog", aligned=1, code=">>deu<<")])
    assert translator.calls == [([">>deu<< the dog"], 1)]
    assert (found.sentence.text, found.sentence.code) == ("the dog", ">>deu<<")
    (alignment,) = found.alignments
    assert alignment.src_words == ("the", "dog")
    # The stand-in's last word is the code's.
    assert alignment.links == ((0, 1), (1, 0))


def test_pairs_are_aligned_in_one_size_of_batch() -> None:
    class Counting(StandIn):
        def align(self, pairs):  # type: ignore[no-untyped-def]
            sizes.append(len(pairs))
            return super().align(pairs)

    sizes: list[int] = []
    made = Engine(Counting(), widest=4, largest=16)
    pairs = [(f"a {number}", f"b {number}") for number in range(11)]
    aligned = made.align(pairs)
    assert [each.tgt_words for each in aligned if each] == [tuple(t.split()) for _, t in pairs]
    assert set(sizes) == {8}
    assert made.align([]) == []
