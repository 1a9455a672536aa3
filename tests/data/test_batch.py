"""A batch row is the pair it came from, shifted for the decoder, and the rest is padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.data.batch import Batch, assemble
from flaxformer_mt.data.plan import PlanError, Shape
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.data.vocabulary import BOS, EOS

SENTENCE = st.lists(st.integers(4, 99), min_size=1, max_size=9)


def by_hand(sentences: list[list[int]], rows: int, length: int) -> dict[str, list[list[int]]]:
    """The four views of one side, written out row by row."""
    views: dict[str, list[list[int]]] = {"in": [], "out": [], "segments": [], "positions": []}
    for sentence in sentences + [[]] * (rows - len(sentences)):
        real = len(sentence) + 1 if sentence else 0
        blank = [0] * (length - real)
        views["out"].append([*sentence, EOS][:real] + blank)
        views["in"].append([BOS, *sentence][:real] + blank)
        views["segments"].append([1] * real + blank)
        views["positions"].append(list(range(real)) + blank)
    return views


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=6),
    extra=st.tuples(*[st.integers(0, 4)] * 3),
    data=st.data(),
)
def test_rows_equal_those_written_by_hand(
    pairs: list[tuple[list[int], list[int]]],
    extra: tuple[int, int, int],
    data: st.DataObject,
) -> None:
    order = data.draw(st.permutations(range(len(pairs))))
    src, tgt = ([list(pair[side]) for pair in pairs] for side in (0, 1))
    shape = Shape(
        len(pairs) + extra[0],
        max(map(len, src)) + 1 + extra[1],
        max(map(len, tgt)) + 1 + extra[2],
    )
    batch = assemble(TokenPairs.from_lists(src, tgt), np.array(order, np.int64), shape)
    assert batch.shape == shape
    expected_src = by_hand([src[i] for i in order], shape.rows, shape.src_length)
    expected_tgt = by_hand([tgt[i] for i in order], shape.rows, shape.tgt_length)
    assert batch.src.tolist() == expected_src["out"]
    assert batch.src_segment_ids.tolist() == expected_src["segments"]
    assert batch.src_positions.tolist() == expected_src["positions"]
    assert batch.tgt_in.tolist() == expected_tgt["in"]
    assert batch.tgt_out.tolist() == expected_tgt["out"]
    assert batch.tgt_segment_ids.tolist() == expected_tgt["segments"]
    assert batch.tgt_positions.tolist() == expected_tgt["positions"]
    assert {array.dtype for array in vars(batch).values()} == {np.dtype(np.int32)}
    assert batch.src_tokens == sum(len(s) + 1 for s in src)
    assert batch.tgt_tokens == sum(len(t) + 1 for t in tgt)
    assert batch.sentences == len(pairs)


def test_sentences_of_packed_rows_count_by_segment() -> None:
    segments = np.array([[1, 1, 2, 3, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]], np.int32)
    batch = Batch(*[segments] * 7)
    assert (batch.sentences, batch.tgt_tokens) == (4, 8)


def test_what_does_not_fit_is_an_error() -> None:
    pairs = TokenPairs.from_lists([[5, 6], [7]], [[8], [9, 10, 11]])
    with pytest.raises(PlanError, match="2 rows do not fit those of"):
        assemble(pairs, np.array([0, 1]), Shape(1, 9, 9))
    with pytest.raises(PlanError, match="pair 0 has 3 src tokens; the shape holds 2"):
        assemble(pairs, np.array([1, 0]), Shape(2, 2, 9))
    with pytest.raises(PlanError, match="pair 1 has 4 tgt tokens; the shape holds 3"):
        assemble(pairs, np.array([0, 1]), Shape(2, 9, 3))
