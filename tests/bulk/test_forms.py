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


def test_a_line_of_text_becomes_its_translation():
    assert made(Form(), "ä b".encode(), "x y") == b"x y\n"
    assert made(Form(), b"a\tb", "x\ty") == b"x\ty\n", "one text, whatever is in it"


def test_scores_and_alignments_are_columns_around_each_translation():
    form = Form(shown=Shown(scores=True, alignments=True))
    assert made(form, b"a", "x", "y", aligned=ALIGNED) == b"-0.5000\tx\t0-1 1-0\n-1.0000\ty\t0-0\n"


def test_n_best_lists_as_moses_has_them_count_from_0():
    form = Form(write="moses", shown=Shown(n_best=True))
    assert made(form, b"a", "x ||| 0-0", "y", number=3) == (
        b"2 ||| x ||| 0-0 ||| log_prob= -1.250000 ||| -0.500000\n"
        b"2 ||| y ||| log_prob= -2.500000 ||| -1.000000\n"
    )
    form = Form(read="tsv", write="moses", column=1, shown=Shown(alignments=True))
    assert made(form, LINE_OF_COLUMNS, "x", "y", aligned=ALIGNED) == (
        b"0 ||| x ||| log_prob= -1.250000 ||| -0.500000 ||| 0-1 1-0\n"
        b"0 ||| y ||| log_prob= -2.500000 ||| -1.000000 ||| 0-0\n"
    )


def test_text_that_is_not_utf_8_is_refused():
    with pytest.raises(BadLine, match="is not UTF-8 text .byte 3."):
        Form().parse(b"ab\xff")


LINE_OF_COLUMNS = b"id 7\ta b\t\tnote "


def test_a_column_is_translated_in_place():
    assert columns().parse(LINE_OF_COLUMNS).source == "a b"
    assert made(columns(), LINE_OF_COLUMNS, "x y") == b"id 7\tx y\t\tnote \n"
    # A tab that a translation spells makes no column.
    assert made(columns(), LINE_OF_COLUMNS, "x\ty") == b"id 7\tx y\t\tnote \n"


def test_appended_translations_repeat_their_line():
    form = columns(append=True, shown=Shown(scores=True))
    assert made(form, LINE_OF_COLUMNS, "x", "y") == (
        b"id 7\ta b\t\tnote \tx\t-0.5000\nid 7\ta b\t\tnote \ty\t-1.0000\n"
    )


def test_columns_become_text_and_text_becomes_columns():
    assert made(Form(read="tsv", column=1), LINE_OF_COLUMNS, "x") == b"x\n"
    assert made(Form(write="tsv", append=True), b"a\tb", "x") == b"a b\tx\n"


def test_a_line_with_too_few_columns_is_refused():
    with pytest.raises(BadLine, match="has 1 column, but no column 2"):
        columns().parse(b"one")


@given(st.text("ab\t ", max_size=5), st.lists(st.text("xy\t ", max_size=5), min_size=1, max_size=3))
def test_columns_of_text_are_as_many_whatever_is_in_them(source, texts):
    """Scores, links and line numbers stand where they are looked for."""
    for extras in (Shown(scores=True), Shown(n_best=True), Shown(alignments=True), ALL):
        columns_of_extras = extras.scores + extras.alignments + extras.n_best
        aligned = ALIGNED[:1] * len(texts) if extras.alignments else ()
        for form, columns_of_text in (
            (Form(shown=extras), 1),
            (Form(write="tsv", append=True, shown=extras), 2),
        ):
            lines = made(form, source.encode(), *texts, aligned=aligned).splitlines()
            counts = [line.count(b"\t") + 1 for line in lines]
            assert counts == [columns_of_text + columns_of_extras] * len(texts)


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


def test_an_object_has_every_hypothesis_and_can_be_translated_again():
    line = made(objects(shown=ALL), b'{"source": "a"}', "x", "y", aligned=ALIGNED)
    translated = json.loads(line)
    best = {"translation": "x", "score": -0.5, "log_prob": -1.25}
    best |= {"alignment": "0-1 1-0", "tokens": [5, 6]}
    second = {"translation": "y", "score": -1.0, "log_prob": -2.5}
    second |= {"alignment": "0-0", "tokens": [5, 6]}
    assert translated == {"source": "a", **best, "at_limit": False, "n_best": [best, second]}

    again = objects(shown=ALL, key="translation", target_key="fr")
    twice_translated = json.loads(made(again, line, "v", "w", aligned=ALIGNED))
    assert {name: twice_translated.pop(name) for name in translated} == translated
    assert [*twice_translated] == ["fr", *(f"fr_{name}" for name in [*translated][2:])]
    assert twice_translated["fr_n_best"][1]["fr_score"] == -1.0


def test_translations_go_under_the_key_that_is_named():
    line = b'{"in": {"en": "a"}}'
    assert made(objects(key="in.en", target_key="de"), line, "x") == (
        b'{"in": {"en": "a"}, "de": "x", "de_at_limit": false}\n'
    )
    assert made(Form(write="jsonl", key="en"), b"a", "x") == (
        b'{"en": "a", "translation": "x", "at_limit": false}\n'
    )


def test_an_object_that_becomes_text_may_have_any_keys():
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
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert json.loads(with_fields(text, {"new key": "{"})) == {**value, "new key": "{"}
