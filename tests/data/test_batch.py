"""A batch row is the pair it came from, shifted for the decoder; each host has its share."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import BatchConfig, VocabularyConfig
from flaxformer_mt.data.batch import Batch, Share, assemble
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.plan import PlanError, Shape
from flaxformer_mt.data.planner import Planner, planned_batches
from flaxformer_mt.data.prepare.report import BORDER, batches_as_text, shapes_table
from flaxformer_mt.data.vocabulary import BOS, EOS, train_pair
from flaxformer_mt.grammar.text import pairs as grammar
from tests.data.pairs import in_memory
from tests.data.test_pipeline import PAIRS

SENTENCE = st.lists(st.integers(4, 99), min_size=1, max_size=9)


def by_hand(sentences: list[list[int]], rows: int, length: int) -> list[list[list[int]]]:
    """The views of one side, written out row by row: out, segments, positions, in."""
    views: list[list[list[int]]] = [[], [], [], []]
    for sentence in sentences + [[]] * (rows - len(sentences)):
        real = len(sentence) + 1 if sentence else 0
        rows_of = [*sentence, EOS], [1] * real, [*range(real)], [BOS, *sentence]
        for view, row in zip(views, rows_of, strict=True):
            view.append(row[:real] + [0] * (length - real))
    return views


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=6),
    extra=st.tuples(*[st.integers(0, 4)] * 3),
    data=st.data(),
)
def test_rows_equal_those_written_by_hand(pairs, extra, data):
    order = data.draw(st.permutations(range(len(pairs))))
    src, tgt = ([list(pair[side]) for pair in pairs] for side in (0, 1))
    longest = max(map(len, src)) + 1 + extra[1], max(map(len, tgt)) + 1 + extra[2]
    shape = Shape(len(pairs) + extra[0], *longest)
    batch = assemble(in_memory(src, tgt), np.array(order, np.int64), shape)
    assert batch.shape == shape
    views = by_hand([src[i] for i in order], shape.rows, shape.src_length)
    arrays = [batch.src, batch.src_segment_ids, batch.src_positions]
    assert [array.tolist() for array in arrays] == views[:3]
    views = by_hand([tgt[i] for i in order], shape.rows, shape.tgt_length)
    arrays = [batch.tgt_out, batch.tgt_segment_ids, batch.tgt_positions, batch.tgt_in]
    assert [array.tolist() for array in arrays] == views
    assert {array.dtype for array in batch.arrays.values()} == {np.dtype(np.int32)}
    assert batch.src_tokens == sum(len(s) + 1 for s in src)
    assert batch.tgt_tokens == sum(len(t) + 1 for t in tgt)
    assert batch.sentences == len(pairs)


def test_what_does_not_fit_is_an_error():
    pairs = in_memory([[5, 6], [7]], [[8], [9, 10, 11]])
    for shape, parts, message in (
        (Shape(1, 9, 9), 1, "2 rows do not fit"),
        (Shape(2, 2, 9), 1, "pair 0 has over 2 src tokens"),
        (Shape(2, 9, 3), 1, "pair 1 has over 3 tgt tokens"),
        (Shape(8, 9, 9), 3, r"8 rows: .*multiple must be n x 3"),
    ):
        with pytest.raises(PlanError, match=message):
            assemble(pairs, np.array([1, 0]), shape, share=Share((0,), parts))


def joined(parts: list[Batch]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays}


@pytest.mark.parametrize(("form", "window"), [("bucket", 30), ("pack", 30), ("pack", 1000)])
def test_any_number_of_hosts_goes_on_with_the_same_global_batches(form, window):
    """Their rows together are the batch, also from the place on that another number reached."""
    config = BatchConfig(form=form, tokens=2000, max_shapes=3, multiple=24, window=window)

    def batches(share, start, count):
        planned = planned_batches(Planner(PAIRS, config, 3), start)
        plans = list(itertools.islice(planned, count))
        planned.close()
        return [(plan.batch(share), plan.after) for plan in plans]

    undisturbed = batches(Share(), Position(), 12)
    for start, expected in ((Position(), undisturbed), (undisturbed[4][1], undisturbed[5:])):
        for hosts in (2, 8):
            shares = [batches(Share((n,), hosts), start, len(expected)) for n in range(hosts)]
            for number, (batch, _) in enumerate(expected):
                union = joined([share[number][0] for share in shares])
                assert all(np.array_equal(union[name], x) for name, x in batch.arrays.items())


@settings(deadline=None)
@given(counts=st.lists(st.integers(0, 3), max_size=12), hosts=st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_rows_without_pairs_and_missing_rows_are_padding(counts, hosts):
    indices = np.arange(sum(counts))
    shape = Shape(12, 60, 60)
    together = assemble(PAIRS, indices, shape, np.array(counts, np.int64))
    shares = [Share((host,), hosts) for host in range(hosts)]
    parts = [assemble(PAIRS, indices, shape, np.array(counts, np.int64), share) for share in shares]
    assert all(
        np.array_equal(joined(parts)[name], array) for name, array in together.arrays.items()
    )
    assert together.src_segment_ids.max(axis=1).tolist() == counts + [0] * (12 - len(counts))
    assert together.sentences == sum(counts)

    # A host's rows need not be neighbours.
    distant = assemble(PAIRS, indices, shape, np.array(counts, np.int64), Share((0, 3), 4))
    for name, array in distant.arrays.items():
        assert np.array_equal(array, together.arrays[name][[0, 1, 2, 9, 10, 11]])


@pytest.mark.parametrize("form", ["bucket", "pack"])
def test_rows_read_as_the_text_that_was_put_in(form):
    corpus = list(grammar("train", 150))
    vocabularies = train_pair(corpus, VocabularyConfig(size=300))
    src, tgt = zip(*corpus, strict=True)
    pairs = in_memory(vocabularies.src.encode(src), vocabularies.tgt.encode(tgt))
    planner = Planner(pairs, BatchConfig(form=form, tokens=2000, max_shapes=3), 1)
    known = dict(corpus)
    texts = list(batches_as_text(planner, vocabularies, batches=2, rows=3))
    assert len(texts) == 2
    for text in texts:
        lines = text.split("\n")
        assert lines[0].startswith("batch ") and "; filled " in lines[0]
        for source, target in zip(lines[1::2], lines[2::2], strict=True):
            sides = [line.split(": ", 1)[1].split(BORDER) for line in (source, target)]
            assert [known[sentence] for sentence in sides[0]] == sides[1]
            assert (len(sides[0]) > 1) == (form == "pack")
    table = shapes_table(planner).split("\n")
    assert len(table) == len(planner.shapes) + 2
    assert "% of their positions are padding" in table[-1]
