"""What stands in a line goes out as it came in, with its translation."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.bulk.forms import BadLine, Form, Shown, with_fields
from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.text.translation import Hypothesis, Translation

ALL = Shown(scores=True, alignments=True, tokens=True, n_best=True)
ALIGNED = [
    Alignment(src_words=("a", "b"), tgt_words=("x", "y"), links=((1, 0), (0, 1))),
    Alignment(src_words=("a",), tgt_words=("x",), links=((0, 0),)),
]


def objects(**options):
    return Form(**{"read": "jsonl", "write": "jsonl", **options})


def columns(**options):
    return Form(read="tsv", write="tsv", column=1, **options)


def said(*texts):
    return Translation(
        hypotheses=tuple(
            Hypothesis(text=text, tokens=(5, 6), log_prob=-1.25 * n, score=-0.5 * n)
            for n, text in enumerate(texts, start=1)
        )
    )


def made(form, line, *texts, aligned=(), **options):
    return form.render(form.parse(line), said(*texts), aligned, **options)


def test_plain_text_and_columns():
    assert made(Form(), "ä b".encode(), "x y") == b"x y\n"
    assert made(Form(), b"a\tb", "x\ty") == b"x\ty\n", "one text, whatever is in it"
    form = Form(shown=Shown(scores=True, alignments=True))
    assert made(form, b"a", "x", "y", aligned=ALIGNED) == b"-0.5000\tx\t0-1 1-0\n-1.0000\ty\t0-0\n"
    with pytest.raises(BadLine, match="is not UTF-8 text .byte 3."):
        Form().parse(b"ab\xff")
    line = b"id 7\ta b\t\tnote "
    assert columns().parse(line).source == "a b"
    assert made(columns(), line, "x y") == b"id 7\tx y\t\tnote \n"
    assert made(columns(append=True, shown=Shown(scores=True)), line, "x", "y") == (
        b"id 7\ta b\t\tnote \tx\t-0.5000\nid 7\ta b\t\tnote \ty\t-1.0000\n"
    )
    # A tab that a translation spells makes no column.
    assert made(columns(), line, "x\ty") == b"id 7\tx y\t\tnote \n"
    assert made(Form(read="tsv", column=1), line, "x") == b"x\n"
    assert made(Form(write="tsv", append=True), b"a\tb", "x") == b"a b\tx\n"
    with pytest.raises(BadLine, match="has 1 column, but no column 2"):
        columns().parse(b"one")


@given(st.text("ab\t ", max_size=5), st.lists(st.text("xy\t ", max_size=5), min_size=1, max_size=3))
def test_columns_of_text_are_as_many_whatever_is_in_them(source, texts):
    """Scores, links and line numbers stand where they are looked for."""
    for shown in (Shown(scores=True), Shown(n_best=True), Shown(alignments=True), ALL):
        further = shown.scores + shown.alignments + shown.n_best
        aligned = ALIGNED[:1] * len(texts) if shown.alignments else ()
        for form, own in ((Form(shown=shown), 1), (Form(write="tsv", append=True, shown=shown), 2)):
            lines = made(form, source.encode(), *texts, aligned=aligned).splitlines()
            assert [line.count(b"\t") + 1 for line in lines] == [own + further] * len(texts)


@pytest.mark.parametrize("added", "score log_prob at_limit alignment tokens n_best".split())
def test_no_key_stands_for_two_things(added):
    """A translation under the key of a score would be lost without a word."""
    for form in (
        {"key": f"de_{added}", "target_key": "de"},
        {"key": added, "read": "text"},
        {"key": f"{added}.en"},
        {"prefix_key": added},
        {"key": "x.en", "target_key": "x"},
    ):
        with pytest.raises(ValueError, match="would be added under"):
            objects(shown=ALL, **form)


def test_a_dot_in_a_key_that_is_written_is_refused():
    """`score` would look for an object."""
    for form in (objects(key="a.b"), Form(read="jsonl", key="a.b")):
        assert form.key == "a.b"
    for keys in ({"key": "a.b"}, {"target_key": "a.b"}):
        with pytest.raises(ValueError, match="must not contain a dot"):
            Form(write="jsonl", **keys)


def test_objects_keep_their_own_text_to_the_byte():
    line = b' {"id": 1.10, "n": 12345678901234567890, "source" : "a\\u00e4", "x": {"y": [1e400]}} '
    assert objects().parse(line).source == "aä"
    assert made(objects(), line, "ö") == (
        line.strip()[:-1] + ', "translation": "ö", "at_limit": false}\n'.encode()
    )
    line = made(objects(shown=ALL), b'{"source": "a"}', "x", "y", aligned=ALIGNED)
    found = json.loads(line)
    one = {"translation": "x", "score": -0.5, "log_prob": -1.25}
    one |= {"alignment": "0-1 1-0", "tokens": [5, 6]}
    two = {"translation": "y", "score": -1.0, "log_prob": -2.5}
    two |= {"alignment": "0-0", "tokens": [5, 6]}
    assert found == {"source": "a", **one, "at_limit": False, "n_best": [one, two]}
    # A translation that is translated again.
    again = objects(shown=ALL, key="translation", target_key="fr")
    both = json.loads(made(again, line, "v", "w", aligned=ALIGNED))
    assert {name: both.pop(name) for name in found} == found
    assert [*both] == ["fr", *(f"fr_{name}" for name in [*found][2:])]
    assert both["fr_n_best"][1]["fr_score"] == -1.0
    line = b'{"in": {"en": "a"}}'
    assert made(objects(key="in.en", target_key="de"), line, "x") == (
        b'{"in": {"en": "a"}, "de": "x", "de_at_limit": false}\n'
    )
    assert made(Form(write="jsonl", key="en"), b"a", "x") == (
        b'{"en": "a", "translation": "x", "at_limit": false}\n'
    )
    # One that becomes text may have any keys.
    line = b'{"source": "a", "translation": "b", "score": 1, "p": "b\\rc"}'
    form = Form(read="jsonl", prefix_key="p")
    assert made(form, line, "x") == b"x\n"
    # A line break is a blank: it could not be said in the target.
    assert form.parse(line).prefix == "b c"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff", "invalid UTF-8: byte 0xFF at byte 1"),
        (b"", "malformed JSON"),
        (b'["source"]', "is JSON, but not an object"),
        (b'{"src": "a"}', "no text under the key: no key 'source'; keys there: 'src'"),
        (b'{"source": "a", "translation": "b"}', "already has 'translation'"),
        (b'{"source": "a", "score": 1}', "already has 'score'"),
    ],
)
def test_lines_that_are_no_objects_with_a_source(line, message):
    with pytest.raises(BadLine, match=message):
        objects(shown=Shown(scores=True)).parse(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_fields_are_added_to_any_object(value):
    for whole in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert json.loads(with_fields(whole, {"new key": "{"})) == {**value, "new key": "{"}
