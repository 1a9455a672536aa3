"""Which lines of a file are looked at, and what is said of the others."""

import pytest

from flaxformer_mt.decoding.segments import OverlongError
from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.find import Sentence, attend, sentences_of, with_translations
from tests.decoding.conftest import run as run, translator as translator
from tests.decoding.runs import PAIRS


def test_lines_that_cannot_be_used_are_counted_or_refused(translator):
    long = f"{PAIRS[0][0]} " * 9
    sources = ["", PAIRS[0][0], long, " ", PAIRS[1][0], PAIRS[2][0], PAIRS[3][0]]
    said: list[str] = []
    found = sentences_of(translator, sources, most=2, translated=False, say=said.append)
    assert [(each.number, each.src) for each in found] == [(2, sources[1]), (5, sources[4])]
    assert said == [
        "skipped 2 lines that are blank: 1, 4",
        "skipped 1 lines that are too long for the model: 3",
        "using the first 2 sentences, without 2 more lines (--sentences)",
    ]


def test_translations_are_those_given_or_the_model_s_and_others_are_refused(translator):
    sources, targets = zip(*PAIRS, strict=True)
    given = sentences_of(translator, sources, targets, most=9)
    assert [each.tgt for each in given] == list(targets)
    assert attend(translator, given[0]).tgt_pieces[-1] == "</s>"
    (made,) = sentences_of(translator, sources[:1], most=9)
    translation = translator.translate(sources[:1])[0]
    assert (made.tgt, made.tokens) == (translation.text, translation.tokens)
    assert len(attend(translator, made).tgt_pieces) == len(translation.tokens) + 1
    with pytest.raises(FigureError, match="2 source lines but 1 translations"):
        sentences_of(translator, ["a", "b"], ["c"], most=9)
    with pytest.raises(FigureError, match="no usable sentence"):
        sentences_of(translator, ["", " "], most=9)
    with pytest.raises(OverlongError, match="the source has"):
        with_translations(translator, [Sentence(number=1, src="the cat " * 40, tgt="")])
