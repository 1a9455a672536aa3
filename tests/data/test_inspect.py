"""The view of batches: what the model sees, readable."""

from __future__ import annotations

import pytest

from flaxformer_mt.config.schema import BatchConfig, VocabularyConfig
from flaxformer_mt.data.inspect import BORDER, batches_as_text, shapes_table
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.synthetic import pairs as grammar
from flaxformer_mt.data.vocabulary import train_pair
from tests.data.pairs import in_memory

TEXT = list(grammar("train", 150))


@pytest.mark.parametrize("form", ["bucket", "pack"])
def test_rows_read_as_the_text_that_was_put_in(form: str) -> None:
    vocabularies = train_pair(TEXT, VocabularyConfig(size=300))
    src, tgt = zip(*TEXT, strict=True)
    pairs = in_memory(vocabularies.src.encode(src), vocabularies.tgt.encode(tgt))
    planner = Planner(pairs, BatchConfig(form=form, tokens=2000, max_shapes=3), 1)  # type: ignore[arg-type]
    known = dict(TEXT)
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
