"""Lines with marks: what the model reads of them, and that nothing is lost."""

import random
import time

import pytest

from flaxformer_mt.keeping.marks import MARK, marked, put_back, taken_out, taken_out_with_places
from flaxformer_mt.keeping.spans import Kept

PARTS = [
    *("{name}", "{0}", "%s", "https://example.org/a?b=1", "me@example.org", "🙂", MARK, "1,234.56"),
    *("the", "dog", "Runs", ".", ". ", "? ", ", ", " ", "  ", "“", "”", "(", ")", "é", "猫", "\n"),
]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("The baker {name} sees https://example.org/a?b=1.", "The baker sees."),
        ("{name}, come here!", "come here!"),
        ("Come here, {name}!", "Come here!"),
        ("{name} is here.", "is here."),
        ("I am happy 🙂", "I am happy"),
        ("Happy🙂 people", "Happy people"),
        ("Tom (tom@example.org) sleeps.", "Tom sleeps."),
        ("{a} and {b} sleep", "and sleep"),
        ("请访问https://example.org/a。谢谢", "请访问。谢谢"),
        ("No marks at all: 1,234.56.", "No marks at all: 1,234.56."),
    ],
)
def test_model_reads_the_rest(text, read):
    line = marked(text)
    assert taken_out(line.text) == read
    assert line.restored() == text


@pytest.mark.parametrize(
    "text", ["1,234.56", " - ", "https://example.org", "🙂 🙂!", "{a}: {b} (5 %)", "§ 5.3.1", "…"]
)
def test_lines_without_letters_are_kept_whole(text):
    assert marked(text).is_kept_whole
    assert marked(text).restored() == text


def test_sentences_without_letters_are_kept_whole():
    line = marked("The dog runs. 1,234.56! The cat sleeps. {a} {b}. It is late.")
    assert line.kept == ("1,234.56!", "{a} {b}.")
    assert line.cores == ("{a}", "{b}")


def test_blank_lines_and_tags_are_not_kept():
    assert not marked("").kept
    assert not marked("  ").kept
    line = marked("<2fr> {x} sleeps", lead="<2fr> ")
    assert line.text.startswith("<2fr> ")
    assert line.kept == ("{x}",)
    assert marked("<2fr> 5.", lead="<2fr> ").restored() == "5."


def test_only_what_is_asked_for():
    line = marked("Łukasz sees {x} and 5.", keep=False, others=[Kept.whole(0, 6)])
    assert line.kept == ("Łukasz",)
    line = marked("{x} sees {y}", but=["{x}"])
    assert line.kept == ("{y}",)
    line = marked("see https://example.org/ŁŁ", others=[Kept.whole(24, 26)])
    assert line.kept == ("https://example.org/ŁŁ",)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost(seed):
    rng = random.Random(seed)
    for _ in range(400):
        text = "".join(rng.choices(PARTS, k=rng.randrange(14)))
        line = marked(text)
        assert put_back(line.text, line.kept) == text
        assert MARK not in taken_out(line.text)
        read, places = taken_out_with_places(line.text)
        assert read == taken_out(line.text)
        whole = line.text.encode()
        assert bytes(whole[place] for place in places[:-1]) == read.encode()


def test_long_blanks_are_read_once():
    text = "a" + " " * 50_000 + f"b {MARK}"
    start = time.process_time()
    assert taken_out(text) == text.removesuffix(f" {MARK}")
    assert time.process_time() - start < 0.5  # quadratic time takes seconds
