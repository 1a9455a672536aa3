"""Heads with a known habit are found, with the sentence and the link that show it.

Which lines of a file are looked at, and what is said of the others.
"""

import dataclasses
import json
import shlex

import numpy as np
import pytest

from flaxformer_mt.decoding.errors import OverlongError
from flaxformer_mt.decoding.teacher_forcing import Attention
from flaxformer_mt.figures import FigureError, find
from flaxformer_mt.figures.find import AttendedSentence, command, described, find_heads, to_json
from tests.decoding.conftest import run as run, translator as translator
from tests.decoding.runs import PAIRS
from tests.figures.examples import made_up

SHORT = ("▁a", "▁cat", "▁ran", "</s>")
LONG = ("▁the", "▁dog", "▁that", "▁we", "▁saw", "▁lost", "▁its", "▁ball", "</s>")
SENTENCES = [
    AttendedSentence(number=number, src="".join(pieces[:-1]).replace("▁", " ")[1:], tgt="x")
    for number, pieces in ((3, SHORT), (7, LONG))
]
MODEL = ["--workdir", "runs/a b", "--weights", "7"]
DECODING = ["--beam-size", "4", "--length-penalty", "0.6"]


def attend(sentence: AttendedSentence) -> Attention:
    """Head 1 rests on the mark, as 2 does but at "ball"; 3 looks at itself, but "its" at "dog"."""
    pieces = SHORT if sentence.number == 3 else LONG
    size = len(pieces)
    encoder = np.zeros((1, 3, size, size), np.float32)
    encoder[0, 0, :, -1] = 1
    for row in range(size):
        encoder[0, 1, row, 1 if pieces[row] == "▁ball" else -1] = 1
        encoder[0, 2, row, 1 if pieces[row] == "▁its" else row] = 1
    attention = made_up(pieces, ("▁x", "</s>"), layers=1)
    return dataclasses.replace(attention, encoder=encoder)


def found(**settings: object):
    pronouns = (frozenset({"its"}), frozenset[str]())
    return find_heads(SENTENCES, attend, kinds=("encoder",), pronouns=pronouns, **settings)


def test_each_search_finds_its_head():
    heads = {head.search.name: head for head in reversed(found().heads)}
    assert {name: head.head for name, head in heads.items()} == {
        "long distance": 2,
        "anaphora": 3,
        "structure": 3,
    }
    (example,) = heads["anaphora"].examples
    assert (example.sentence.number, example.query, example.key) == (7, "its", "dog")
    assert (example.row, example.column, example.weight) == (7, 2, 1.0)
    far = heads["long distance"]
    assert far.value == 1 / 11  # one query of three and eight
    assert [(far_example.query, far_example.key) for far_example in far.examples] == [
        ("ball", "dog")
    ]


def test_the_link_of_a_long_distance_is_one_of_words():
    """The full stop's is the stronger one, and the only one where no word's is far enough."""
    pieces = ("▁the", "▁dog", "▁that", "▁we", "▁saw", "▁ran", "▁.", "</s>")

    def far_away(sentence):
        encoder = np.zeros((1, 1, 8, 8), np.float32)
        encoder[0, 0, :, -1] = 1.0
        encoder[0, 0, 5, [0, -1]] = 0.7, 0.3
        encoder[0, 0, 6, [0, -1]] = 0.9, 0.1
        return dataclasses.replace(made_up(pieces, ("▁x", "</s>"), layers=1), encoder=encoder)

    def queries(far):
        report = find_heads(SENTENCES[:1], far_away, kinds=("encoder",), far=far)
        heads = [head for head in report.heads if head.search.name == "long distance"]
        return [example.query for head in heads for example in head.examples]

    assert queries(5) == ["ran"] and queries(6) == ["."]


def test_reports_say_what_they_count():
    report = found()
    text = described(report, model=MODEL, decoding=DECODING)
    _, *lines = text.partition("\n\n")[0].split("\n")
    assert len(lines) == 3 and lines[0].split()[8] == "100.0%"
    assert lines[0].split()[3] == "–"  # no piece is looked at: there is no distance
    content = json.loads(json.dumps(to_json(report), allow_nan=False))
    assert content["pronouns"] == {"encoder": 1} and content["queries"] == {"encoder": 11}
    assert content["heads"][0]["distance"] is None
    assert "line 7: ball → dog 100%" in text


def test_what_no_head_does_is_not_named():
    assert "long distance" not in {head.search.name for head in found(far=7).heads}


def test_reports_say_how_to_draw_an_example():
    head = next(head for head in found().heads if head.search.name == "anaphora")
    (example,) = head.examples
    cross = dataclasses.replace(head, kind="cross")
    sentence = dataclasses.replace(example.sentence, tokens=(5,))
    generated = dataclasses.replace(example, sentence=sentence)
    for kind_of_head, drawn, translation in (
        (head, example, []),  # the encoder knows of no translation
        (cross, example, ["--tgt", "x"]),
        (cross, generated, DECODING),
    ):
        assert shlex.split(command(kind_of_head, drawn, model=MODEL, decoding=DECODING)) == [
            *("flaxformer-mt", "attention", *MODEL, "--src", SENTENCES[1].src, *translation),
            *("--kind", kind_of_head.kind, "--layer", "1", "--head", "3"),
            *("--query", "7", "--output", "attention.svg"),
        ]


def test_lines_that_cannot_be_used_are_counted_or_refused(translator):
    long = f"{PAIRS[0][0]} " * 9
    sources = ["", PAIRS[0][0], long, " ", PAIRS[1][0], PAIRS[2][0], PAIRS[3][0]]
    said: list[str] = []
    sentences = find.sentences_of(translator, sources, most=2, translated=False, say=said.append)
    assert [(sentence.number, sentence.src) for sentence in sentences] == [
        (2, sources[1]),
        (5, sources[4]),
    ]
    assert said == [
        "skipped 2 lines that are blank: 1, 4",
        "skipped 1 lines that are too long for the model: 3",
        "using the first 2 sentences, without 2 more lines (--sentences)",
    ]


def test_translations_are_those_given_or_the_model_s(translator):
    sources, targets = zip(*PAIRS, strict=True)
    with_targets = find.sentences_of(translator, sources, targets, most=9)
    assert [sentence.tgt for sentence in with_targets] == list(targets)
    assert find.attend(translator, with_targets[0]).tgt_pieces[-1] == "</s>"
    (translated,) = find.sentences_of(translator, sources[:1], most=9)
    translation = translator.translate(sources[:1])[0]
    assert (translated.tgt, translated.tokens) == (translation.text, translation.tokens)
    assert len(find.attend(translator, translated).tgt_pieces) == len(translation.tokens) + 1


def test_lines_without_a_usable_sentence_are_refused(translator):
    with pytest.raises(FigureError, match="2 source lines but 1 translations"):
        find.sentences_of(translator, ["a", "b"], ["c"], most=9)
    with pytest.raises(FigureError, match="no usable sentence"):
        find.sentences_of(translator, ["", " "], most=9)
    with pytest.raises(OverlongError, match="the source has"):
        find.with_translations(
            translator, [AttendedSentence(number=1, src="the cat " * 40, tgt="")]
        )
