"""Pairs read in three forms, and what is written of their scores."""

import json

import pytest

from flaxformer_mt.bulk.forms import BadLine, Form, PairForm
from flaxformer_mt.bulk.reading import InputError, open_pairs
from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.decoding.teacher_forcing import Scored

VOCABULARY = vocabulary.train(["a b c"] * 3, VocabularyConfig(size=8))
SCORED = Scored(log_prob=-1.5, score=-1.25, tokens=(5, 6, 2), token_log_probs=(-1.0, -0.25, -0.25))


def test_two_files_in_step(tmp_path):
    src, tgt = tmp_path / "en", tmp_path / "de"
    src.write_bytes(b"one\ntwo\r\n")
    tgt.write_bytes(b"eins\nzwei")
    form = PairForm(name="files", per_token=True)
    with open_pairs(str(src), str(tgt)) as lines:
        records = [form.parse(line) for line in lines]
        assert lines.share(8) == pytest.approx(8 / 17, abs=0.05)
    texts = [(record.source, record.target) for record in records]
    assert texts == [("one", "eins"), ("two", "zwei")]
    log_probs = ("-1.000000", "-0.250000", "-0.250000")
    pieces = zip(VOCABULARY.pieces((5, 6, 2)), log_probs, strict=True)
    per_token = " ".join(f"{piece}:{log_prob}" for piece, log_prob in pieces)
    expected = f"-1.500000\t-1.250000\t{per_token}\n".encode()
    assert form.render(records[0], SCORED, VOCABULARY) == expected
    tgt.write_bytes(b"eins\n\xff\nextra\n")
    with open_pairs(str(src), str(tgt)) as lines:
        next(lines)
        with pytest.raises(BadLine, match="the target is not UTF-8 text"):
            form.parse(next(lines))
        with pytest.raises(InputError, match="en: ends after 2 lines, but .*de has more"):
            next(lines)


def test_columns_are_read_and_scores_appended():
    form = PairForm(name="tsv", src=2, tgt=0)
    record = form.parse(b"ziel\tid\tquelle")
    assert (record.source, record.target) == ("quelle", "ziel")
    assert form.render(record, SCORED, VOCABULARY) == b"ziel\tid\tquelle\t-1.500000\t-1.250000\n"
    with pytest.raises(BadLine, match="has 2 columns, but no column 3"):
        form.parse(b"a\tb")


def test_objects_keep_their_text_and_have_scores_added():
    form = PairForm(name="jsonl", source_key="t.en", target_key="t.de", per_token=True)
    line = b'{"t": {"en": "a", "de": "b"}, "n": 1.10}'
    record = form.parse(line)
    assert (record.source, record.target) == ("a", "b")
    written = form.render(record, SCORED, VOCABULARY)
    assert written.startswith(line[:-1] + b', "scored": {"log_prob": -1.5, "score": -1.25, ')
    assert json.loads(written)["scored"]["token_log_probs"] == [-1.0, -0.25, -0.25]
    with pytest.raises(BadLine, match="already has 'scored'"):
        form.parse(b'{"scored": 1}')


def test_tokens_of_an_object_are_its_target():
    form = PairForm(name="jsonl", tokens_key="tokens")
    record = form.parse(b'{"source": "a", "tokens": [5, 2, 6]}')
    assert (record.target, record.text) == ([5, 2, 6], None)
    assert form.parse(b'{"source": "a", "tokens": [5], "translation": "\\ud800"}').text is None
    # A source is what `translate` has read there.
    line = b'{"source": "a\\nb\\r\\nc", "translation": "x\\ny", "tokens": [5]}'
    assert form.parse(line).source == Form(read="jsonl").parse(line).source == "a b  c"
    assert form.parse(line).text == "x y"


@pytest.mark.parametrize(
    "tokens", [b"", b', "tokens": "5"', b', "tokens": [5.0]', b', "tokens": [true]']
)
def test_tokens_that_are_no_list_of_integers_are_refused(tokens):
    form = PairForm(name="jsonl", tokens_key="tokens")
    with pytest.raises(BadLine, match="no list of integers under 'tokens'"):
        form.parse(b'{"source": "a"' + tokens + b"}")
