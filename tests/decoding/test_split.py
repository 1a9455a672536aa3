"""Cutting long texts: everything fits, nothing is lost, cuts stand where they should."""

import dataclasses
import tracemalloc
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sacrebleu.metrics import CHRF

from flaxformer_mt.config import DecodingConfig, VocabularyConfig
from flaxformer_mt.data.vocabulary import Vocabulary, train
from flaxformer_mt.decoding.masks.trees import Brackets
from flaxformer_mt.decoding.penalties import length_penalty
from flaxformer_mt.decoding.run.output_reader import decoded_of
from flaxformer_mt.decoding.search.settings import Rules
from flaxformer_mt.decoding.search.state import Hypotheses
from flaxformer_mt.decoding.text.decoded import Decoded
from flaxformer_mt.decoding.text.segments import CutLine, Piece, split_pair_to_fit, split_to_fit
from flaxformer_mt.decoding.text.translation import Joiner, chrf


def within(characters: int):
    return lambda text: len(text) <= characters


@pytest.mark.parametrize(
    "text, limit, expected",
    [
        (" One. Two. ", 10, ["One. Two.|"]),
        # Sentence ends first, however near a blank is.
        ("Is it? No, not at all. It is.", 24, ["Is it?| ", "No, not at all.| ", "It is.|"]),
        # No abbreviation is a sentence end, and lower case is none unless all is in lower case.
        ("He saw Gen. Lee there, once.", 24, ["He saw Gen. Lee there,| ", "once.|"]),
        ("a man . another man , here .", 16, ["a man .| ", "another man ,| ", "here .|"]),
        ("यह घर है। वह बड़ा है।", 20, ["यह घर है।| ", "वह बड़ा है।|"]),
        ('He said "No." She left.', 15, ['He said "No."| ', "She left.|"]),
        ("first part, second part", 14, ["first part,| ", "second part|"]),
        ("one two three four", 10, ["one two| ", "three four|"]),
        ("abcdefgh", 4, ["abcd|", "efgh|"]),
        ("我喜欢猫。他喜欢狗。", 5, ["我喜欢猫。| ", "他喜欢狗。|"]),
        # Between characters of a text without blanks is not inside a word of the translation.
        ("我喜欢猫他喜欢狗", 4, ["我喜欢猫| ", "他喜欢狗|"]),
    ],
)
def test_cuts_at_the_best_place(text, limit, expected):
    pieces = split_to_fit(text, within(limit))
    assert [f"{piece.text}|{piece.glue}" for piece in pieces] == expected


def test_an_accent_stays_with_its_letter():
    pieces = split_to_fit("e\u0301" * 9, within(4))
    assert not any(unicodedata.combining(piece.text[0]) for piece in pieces)


def test_very_long_text_takes_few_questions():
    lengths = []

    def fits(text: str) -> bool:
        lengths.append(len(text))
        return len(text) <= 100

    assert all(len(piece.text) <= 100 for piece in split_to_fit("word " * 20_000, fits))
    # Each level of halving looks at the text about once.
    assert sum(lengths) < 100_000 * 14


def test_a_character_that_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match="'a' and '' do not fit"):
        split_to_fit("ab", lambda text: False)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.text(alphabet="ab .,;!?。，é\u0301\u2028—", max_size=120),
    st.text(alphabet="xy .,!?é", max_size=120),
    st.integers(1, 30),
)
def test_every_pair_of_pieces_fits_and_nothing_but_blanks_is_lost(src, tgt, limit):
    pairs = split_pair_to_fit(src, tgt, lambda a, b: len(a) <= limit and len(b) <= limit)
    for number, side in enumerate((src, tgt)):
        pieces = [pair[number] for pair in pairs]
        assert all(len(piece.text) <= limit for piece in pieces)
        assert "".join("".join(p.text.split()) for p in pieces) == "".join(side.split())
        assert pieces[-1].glue == ""


def test_a_translation_is_cut_at_its_own_sentence_ends():
    pairs = split_pair_to_fit(
        "I am here. You are there, too. He?",
        "Ich bin hier. Auch du bist dort. Und er?",
        lambda src, tgt: len(src) <= 20,
    )
    assert [(src.text, tgt.text) for src, tgt in pairs] == [
        ("I am here.", "Ich bin hier."),
        ("You are there, too.", "Auch du bist dort."),
        ("He?", "Und er?"),
    ]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return train(["ein hund rennt heim", "die katze schläft"] * 9, VocabularyConfig(size=30))


def decoded(log_prob: float, length: int, at_limit: bool = False) -> Decoded:
    score = log_prob / float(length_penalty(length + 1, 1.0))
    return Decoded(tokens=(5,) * length, log_prob=log_prob, score=score, at_limit=at_limit)


CONFIG = dataclasses.replace(DecodingConfig(), length_penalty=1.0)


def test_the_best_comes_first_and_says_whether_it_is_at_its_limit(vocabulary):
    """The pieces' first ones need not make the best whole: the penalty is of the whole length."""
    first = [decoded(-0.5, 1), decoded(-1.1, 8, at_limit=True), decoded(-2.0, 8)]
    second = [decoded(-0.5, 1), decoded(-1.05, 8)]
    for piece in (first, second):
        assert piece == sorted(piece, key=lambda one: -one.score)
    translation = Joiner(vocabulary, CONFIG).join(
        CutLine([Piece("x", " "), Piece("y", "")], overlong=True), [first, second]
    )
    best, second_best = translation.hypotheses
    assert (best.log_prob, second_best.log_prob) == pytest.approx((-2.15, -1.0))
    assert translation.at_limit
    assert (best.score, second_best.score) == pytest.approx((-2.15 * 6 / 23, -1.0 * 6 / 9))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (("a", "", "b"), "a b"),
        (("a", "b", ""), "a b"),
        (("", "a", "b"), "a b"),
        (("", "", ""), ""),
    ],
)
def test_a_part_translated_by_nothing_has_no_blank(said, text):
    class Spelling:
        def decode(self, rows):
            return ["".join(map(chr, row)) for row in rows]

    pieces = [Piece("x", " "), Piece("y", " "), Piece("z", "")]
    outputs = [
        [Decoded(tokens=tuple(map(ord, part)), log_prob=-1.0, score=-1.0, at_limit=False)]
        for part in said
    ]
    translation = Joiner(Spelling(), CONFIG).join(CutLine(pieces, sentences=3), outputs)
    assert translation.text == text and translation.by_sentence


def test_of_one_piece_the_searchs_own_scores_are_kept(vocabulary):
    outputs = [[decoded(-1.0, 2, at_limit=True), decoded(-2.0, 3)]]
    translation = Joiner(vocabulary, CONFIG).join(CutLine([Piece("x", "")]), outputs)
    assert [hypothesis.score for hypothesis in translation.hypotheses] == [
        output.score for output in outputs[0]
    ]
    assert translation.at_limit and not translation.split


def test_a_tree_with_one_place_left_is_at_its_limit_too():
    """A further bracket takes two."""
    outputs = Hypotheses(np.full((1, 1, 9), 5), *np.zeros((2, 1, 1)), np.array([[7]]))
    trees = Rules(beam_size=1, trees=Brackets(pairs=((4, 5),), leaves=(8,)))
    at_limits = {
        (rules.trees is None, limit): decoded_of(outputs, 0, limit, rules, np.arange(9))[0].at_limit
        for rules in (trees, Rules(beam_size=1))
        for limit in (7, 8, 9)
    }
    assert {of for of, at_limit in at_limits.items() if at_limit} == {
        (False, 7),
        (False, 8),
        (True, 7),
    }


def test_chrf_is_sacrebleu_s():
    texts = ["Das alte Haus ist klein.", "Das Haus ist  alt.", "Ja", "", "a", "ein Hund rennt ."]
    metric = CHRF()
    expected = [
        [metric.sentence_score(hypothesis, [reference]).score / 100 for reference in texts]
        for hypothesis in texts
    ]
    np.testing.assert_allclose(chrf(texts), expected, atol=1e-12)
    tracemalloc.start()
    try:
        many = chrf(texts * 40)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(many, np.tile(chrf(texts), (40, 40)))
    assert peak < 10 * many.nbytes  # not a number per pair of texts and n-gram


def test_minimum_risk_takes_what_the_likely_others_resemble(vocabulary):
    """Not the likeliest, which is unlike the others, unless it is likelier than all of them."""
    texts = ["ein hund", "die katze", "die katze schläft", "die katze schläf"]

    def chosen(*log_probs: float, sampled: bool = False) -> list[str]:
        outputs = [
            Decoded(tokens=tuple(tokens), log_prob=log_prob, score=log_prob, at_limit=log_prob < -2)
            for tokens, log_prob in zip(vocabulary.encode(texts), log_probs, strict=False)
        ]
        settings = {"n_best": 2, "mbr": True, "sampled": sampled}
        translation = Joiner(vocabulary, CONFIG, **settings).join(
            CutLine([Piece("x", "")]), [outputs]
        )
        assert len(translation.hypotheses) == 2 and translation.at_limit == (
            translation.hypotheses[0].log_prob < -2
        )
        return [hypothesis.text for hypothesis in translation.hypotheses]

    assert chosen(-1.0, -3.0, -1.5, -1.4)[0].startswith("die katze schl")
    assert chosen(-1.0, -9.5, -9.0, -9.5)[0] == "ein hund"
    # Of these two the longer one has all of the other, which chrF counts more than what is its own.
    assert chosen(-1.0, -9.0, -9.0, sampled=True)[0] == "die katze schläft"
