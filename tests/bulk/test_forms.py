"""What stands in a line goes out as it came in, with its translation."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.bulk.forms import BadLine, Form, Shown, with_fields
from flaxformer_mt.decoding import Alignment, Hypothesis, Translation

ALL = Shown(scores=True, alignments=True, tokens=True, n_best=True)


def said(*texts: str) -> Translation:
    return Translation(
        hypotheses=tuple(
            Hypothesis(text=text, tokens=(5, 6), log_prob=-1.25 * n, score=-0.5 * n)
            for n, text in enumerate(texts, start=1)
        )
    )


ALIGNED = [
    Alignment(src_words=("a", "b"), tgt_words=("x", "y"), links=((1, 0), (0, 1))),
    Alignment(src_words=("a",), tgt_words=("x",), links=((0, 0),)),
]


def made(form: Form, line: bytes, *texts: str, aligned=()) -> bytes:
    return form.render(form.parse(line), said(*texts), aligned)


def test_plain_text():
    assert made(Form(), "ä b".encode(), "x y") == b"x y\n"
    assert made(Form(), b"a b", "x", "y") == b"x\ny\n"
    form = Form(shown=Shown(scores=True, alignments=True))
    assert made(form, b"a", "x", "y", aligned=ALIGNED) == b"-0.5000\tx\t0-1 1-0\n-1.0000\ty\t0-0\n"


def test_columns():
    line = b"id 7\ta b\t\tnote "
    form = Form(read="tsv", write="tsv", column=1)
    assert form.parse(line).source == "a b"
    assert made(form, line, "x y") == b"id 7\tx y\t\tnote \n"
    appended = Form(read="tsv", write="tsv", column=1, append=True, shown=Shown(scores=True))
    assert made(appended, line, "x", "y") == (
        b"id 7\ta b\t\tnote \tx\t-0.5000\nid 7\ta b\t\tnote \ty\t-1.0000\n"
    )
    # A tab that a translation spells makes no column.
    assert made(form, line, "x\ty") == b"id 7\tx y\t\tnote \n"
    assert made(Form(read="tsv", column=1), line, "x") == b"x\n"
    assert made(Form(write="tsv", append=True), b"a b", "x") == b"a b\tx\n"
    with pytest.raises(BadLine, match="has 1 column, no column 2"):
        form.parse(b"one")


def test_objects_keep_their_own_text_to_the_byte():
    line = b' {"id": 1.10, "n": 12345678901234567890, "source" : "a\\u00e4", "x": {"y": [1e400]}} '
    form = Form(read="jsonl", write="jsonl")
    assert form.parse(line).source == "aä"
    assert made(form, line, "ö") == line.strip()[:-1] + ', "translation": "ö"}\n'.encode()
    full = Form(read="jsonl", write="jsonl", shown=ALL)
    found = json.loads(made(full, b'{"source": "a"}', "x", "y", aligned=ALIGNED))
    one = {"translation": "x", "score": -0.5, "log_prob": -1.25}
    one |= {"alignment": "0-1 1-0", "tokens": [5, 6]}
    two = {"translation": "y", "score": -1.0, "log_prob": -2.5}
    two |= {"alignment": "0-0", "tokens": [5, 6]}
    assert found == {"source": "a", **one, "n_best": [one, two]}
    keys = Form(read="jsonl", write="jsonl", key="in.en", target_key="de")
    line = b'{"in": {"en": "a"}}'
    assert made(keys, line, "x") == b'{"in": {"en": "a"}, "de": "x"}\n'
    assert made(Form(write="jsonl", key="en"), b"a", "x") == b'{"en": "a", "translation": "x"}\n'
    assert made(Form(read="jsonl"), b'{"source": "a"}', "x") == b"x\n"
    # A line break is a blank: it could not be said in the target.
    assert form.parse(b'{"source": "a\\nb\\r\\nc"}').source == "a b  c"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff", "invalid UTF-8: byte 0xFF at byte 1"),
        (b'{"source": ', "malformed JSON: Expecting value at character 12"),
        (b"", "malformed JSON"),
        (b'["source"]', "is JSON, but no object"),
        (b'{"src": "a"}', "no text under the key: no key 'source'; keys there: 'src'"),
        (b'{"source": 3}', "'source' is a number and not a text"),
        (b'{"source": "\\ud800"}', "half a character"),
        (b'{"source": "a", "translation": "b"}', "has 'translation' already"),
        (b'{"source": "a", "score": 1}', "has 'score' already"),
        (b"[" * 100_000, "malformed JSON"),
        (b'{"source": "a", "n": ' + b"9" * 5000 + b"}", "malformed JSON"),
    ],
)
def test_lines_that_are_no_objects_with_a_source(line, message):
    with pytest.raises(BadLine, match=message):
        Form(read="jsonl", write="jsonl", shown=Shown(scores=True)).parse(line)
    with pytest.raises(BadLine, match="is not UTF-8 text .byte 3."):
        Form().parse(b"ab\xff")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=6,
        ),
        max_size=4,
    )
)
def test_fields_are_added_to_any_object(value):
    for whole in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert json.loads(with_fields(whole, {"new key": "{"})) == {**value, "new key": "{"}
