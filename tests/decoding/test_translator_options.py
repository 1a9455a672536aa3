"""What a caller may ask of a translation besides the run's settings."""

from __future__ import annotations

import shutil

import pytest

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.decoding import DecodingError, Translator
from flaxformer_mt.decoding.sampling import Sampling
from flaxformer_mt.decoding.segments import PrefixError, TargetError
from tests.decoding.runs import PAIRS, make_run

LINES = [source for source, _ in PAIRS]
LONG = " ".join(LINES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    return [make_run(folder / name, {step: 10.0}).path for name, step in (("a", 1), ("b", 2))]


@pytest.fixture(scope="module")
def translator(runs):
    return Translator.load(runs[0])


def test_one_str_is_one_line_and_not_its_characters(translator):
    [alone] = translator.translate([LINES[0]], prefixes=["die katze"], suppress=["s"])
    assert translator.translate(LINES[0], prefixes="die katze", suppress="s") == alone
    assert translator.translate("").text == ""
    with pytest.raises(TypeError, match="lines, not one str"):
        next(translator.translate_lines(LINES[0]))


def test_a_pair_alone_or_texts_for_tokens_are_refused(translator):
    """Of two characters, a text would pass for a pair; digits would for tokens."""
    for ask in (translator.score, translator.align):
        assert len(ask(zip(LINES, LINES, strict=True))) == len(LINES)
        for pairs in ("ab", ("ab", "cd"), ["ab"], [("ab", "cd", "ef")]):
            with pytest.raises(TypeError, match="not a .source, translation. tuple; a single pair"):
                ask(pairs)
    with pytest.raises(TargetError, match="is one str, or a sequence of token ids"):
        translator.attend("ab", ["4", "5"])


def test_a_translation_begins_with_its_prefix(translator):
    prefixes = ["die katze", "", "wer", "sie schlafen"]
    translations = translator.translate(LINES, prefixes=prefixes)
    for prefix, translation in zip(prefixes, translations, strict=True):
        [tokens] = translator.vocabularies.tgt.encode([prefix])
        assert list(translation.tokens[: len(tokens)]) == tokens
    # Beside a prefix another program decodes: XLA rounds its sums otherwise.
    alone = translator.translate(LINES[1])
    assert translations[1].tokens == alone.tokens
    assert translations[1].score == pytest.approx(alone.score, abs=1e-5)
    # Of a line that is cut, the first piece begins with it.
    [split] = translator.translate([LONG], prefixes=["die katze"])
    assert split.split and split.text.startswith("die katze")


def test_a_prefix_that_fills_its_translation_names_its_line(translator):
    with pytest.raises(PrefixError, match=r"has a prefix of \d+ tokens; .* at most \d+") as why:
        translator.translate(["", LONG, LINES[2]], prefixes=["x", "", PAIRS[1][1] * 3])
    assert why.value.number == 2


def test_a_prefix_that_cannot_be_spelt_is_refused_with_its_line(translator):
    """Forced as the unknown token, it would begin nothing that was asked for."""
    prefixes = ["漢", "die 漢字 ☃ katze", "wer"]
    with pytest.raises(
        PrefixError, match=r"'die 漢字 ☃ katze'; .* cannot spell '漢字', '☃'"
    ) as why:
        translator.translate(["", *LINES[:2]], prefixes=prefixes)
    assert why.value.number == 1


def test_suppressed_pieces_are_in_no_translation(translator):
    tgt = translator.vocabularies.tgt
    usual = translator.translate(LINES)
    seen = {piece for each in usual for piece in tgt.pieces(each.tokens)} - {"</s>"}
    banned = sorted(seen)[:3]
    without = translator.translate(LINES, suppress=banned)
    assert not {piece for each in without for piece in tgt.pieces(each.tokens)} & set(banned)
    for wrong in ("no such piece", "</s>"):
        with pytest.raises(DecodingError, match="is no piece of the target vocabulary"):
            translator.translate(LINES, suppress=[wrong])


def test_draws_follow_the_seed_and_the_lines_number(translator):
    def draw(lines, first=1, seed=3):
        sampling = Sampling(seed=seed, temperature=2.0)
        translations = translator.translate(lines, sampling=sampling, n_best=4, first=first)
        return [[hypothesis.tokens for hypothesis in each.hypotheses] for each in translations]

    together = draw([*LINES, LONG, "", LINES[0]])
    assert draw(LINES[2:3], first=3) == together[2:3]
    assert draw([LINES[0]], first=7) == together[6:]
    assert together[0] != together[6] and draw(LINES, seed=4) != together[:4]
    [four] = translator.translate(LINES[:1], sampling=Sampling(), n_best=4)
    scores = [hypothesis.score for hypothesis in four.hypotheses]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True)


def test_other_settings_leave_the_translator_as_it_is(translator):
    before = translator.config
    short = translator.with_config(max_ratio=0.0, max_extra_tokens=3, length_norm="average")
    for translation in short.translate(LINES):
        assert len(translation.tokens) + 1 <= 3
        assert translation.score == pytest.approx(
            translation.hypotheses[0].log_prob / (len(translation.tokens) + 1) ** 0.6
        )
    assert translator.config == before and translator.translate(LINES) != short.translate(LINES)
    pairs = [(line, short.translate([line])[0].tokens) for line in LINES]
    for scored, translation in zip(short.score(pairs), short.translate(LINES), strict=True):
        assert scored.score == pytest.approx(translation.score, abs=1e-5)


def test_the_dtype_of_products(translator):
    lines = [source for source, _ in PAIRS]
    reduced = translator.with_dtype("bfloat16")
    assert {model.config.dtype for _, model in reduced.members} == {"bfloat16"}
    assert translator.model.config.dtype == "float32"
    exact, rounded = translator.score(PAIRS), reduced.score(PAIRS)
    differences = [abs(one.score - other.score) for one, other in zip(exact, rounded, strict=True)]
    assert 1e-5 < max(differences) < 0.1
    assert all(reduced.translate(lines))
    assert reduced.with_dtype("float32").score(PAIRS) == exact


def test_an_ensemble_of_runs(runs, translator):
    both = Translator.load_ensemble(runs)
    assert both.name == "best, step 1 + best, step 2"
    other = Translator.load(runs[1])
    texts = [[each.text for each in one.translate(LINES)] for one in (both, translator, other)]
    assert texts[1] != texts[2]
    same = Translator.load_ensemble([runs[0], runs[0]])
    assert [each.text for each in same.translate(LINES)] == texts[1]
    for asked in (both.score, both.align):
        with pytest.raises(DecodingError, match="one model's"):
            asked([(LINES[0], PAIRS[0][1])])
    assert Translator.load_ensemble(runs[:1]).members[0][1] == translator.model


def test_models_of_different_vocabularies_are_no_ensemble(runs, tmp_path):
    other = make_run(tmp_path / "c", {1: 10.0})
    shutil.rmtree(other.vocabulary)
    again = vocabulary.train_pair([*PAIRS, PAIRS[0]] * 5, VocabularyConfig(size=60))
    again.save(other.vocabulary)
    with pytest.raises(DecodingError, match="has another vocabulary than"):
        Translator.load_ensemble([runs[0], other.path])
