"""Lines of several sentences: together as far as the model has learnt to, else one by one."""

import json

import numpy as np
import pytest

from flaxformer_mt.data.training_text import KNOWN_SHARE, TrainingText
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.errors import OverlongError, TargetError
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.rundir import RunDirectoryError
from tests.decoding.runs import MAX_LENGTH, make_run

SENTENCES = ["A dog runs .", "The cat sleeps .", "Who sees ?"]
TWO, THREE = " ".join(SENTENCES[:2]), " ".join(SENTENCES)


def reading(
    translator: Translator, together: int | None, tgt_lang: str = "de", ratio: float = 1.0
) -> Translator:
    """The same model, of training text whose lines have so many sentences, and so many target
    tokens for each source token."""
    return Translator(
        translator.params,
        translator.model,
        translator.vocabularies,
        translator.config,
        src_lang="en",
        tgt_lang=tgt_lang,
        training_text=TrainingText(together, ratio),
    )


@pytest.fixture(scope="module")
def single(translator):
    return reading(translator, 1)


def test_each_sentence_is_translated_by_itself(single, caplog):
    line, *alone = single.translate([THREE, *SENTENCES], n_best=2)
    assert line.by_sentence and line.sentences == 3 and not line.split
    for place, hypothesis in enumerate(line.hypotheses[:1]):
        assert hypothesis.text == " ".join(part.hypotheses[place].text for part in alone)
    assert not any(part.by_sentence for part in alone)
    assert not caplog.messages


def test_as_many_sentences_as_training_text_has_stay_together(translator):
    pair = reading(translator, 2)
    two, three = pair.translate([TWO, THREE])
    assert (two.by_sentence, three.by_sentence) == (False, True)
    assert two == pair.translate(TWO, several="keep")


def test_a_caller_may_keep_or_split_all(translator, single):
    assert not single.translate(THREE, several="keep").by_sentence
    unknown = reading(translator, None)
    assert unknown.translate(TWO, several="split") == single.translate(TWO)


def test_where_training_text_is_unknown_nothing_is_cut(translator, caplog):
    translation = reading(translator, None).translate(TWO)
    assert translation.at_risk and not translation.by_sentence
    assert "1 of 1 lines have several sentences" in caplog.text


def test_sentences_have_no_blank_between_them_where_words_have_none(translator):
    line, *alone = reading(translator, 1, "zh").translate([TWO, *SENTENCES[:2]])
    assert line.text == "".join(part.text for part in alone)
    line, *alone = reading(translator, 1, "th").translate([TWO, *SENTENCES[:2]])
    assert line.text == " ".join(part.text for part in alone)


QUOTED = f"“{TWO}” {SENTENCES[2]}"


def test_sentences_of_a_quotation_are_read_without_its_marks(single):
    line, *alone = single.translate([QUOTED, *SENTENCES])
    first, second, third = (part.text for part in alone)
    assert line.by_sentence and line.text == f"“{first} {second}” {third}"
    (scored,) = single.score([(QUOTED, line.tokens)])
    assert scored.score == pytest.approx(line.score, abs=1e-4)


def test_a_quotation_is_scored_and_aligned_as_it_is_translated(single):
    targets = ["Ein Hund .", "Katze .", "Wer ?"]
    quoted = f"„{targets[0]} {targets[1]}“ {targets[2]}"
    line, *alone = single.score([(QUOTED, quoted), *zip(SENTENCES, targets, strict=True)])
    expected = sum((scored.token_log_probs for scored in alone), ())
    np.testing.assert_allclose(line.token_log_probs, expected, rtol=0, atol=1e-5)

    translation = single.translate(QUOTED)
    (alignment,) = single.align([(QUOTED, translation.tokens)])
    assert list(alignment.src_words) == QUOTED.split()
    assert list(alignment.tgt_words) == translation.text.split()


@pytest.mark.parametrize(
    ("source", "marks"),
    [(THREE, "“|.”"), (f"{SENTENCES[0]} “{SENTENCES[1]} {SENTENCES[2]}”", "“|.”"), (QUOTED, "|.")],
)
def test_marks_that_only_a_translation_has_are_scored(single, source, marks):
    opening, closing = marks.split("|")
    parts = single.score([(source, "“Ein Hund. Katze.” Wer?")])[0].tokens
    encode = single.vocabularies.tgt.encode
    first, second, third = encode([f"{opening}Ein Hund.", f"Katze{closing}", "Wer?"])
    assert list(parts) == [*first, EOS, *second, EOS, *third, EOS]


def test_brackets_of_chinese_become_marks(translator):
    line = reading(translator, 1).translate("「A dog runs . The cat sleeps .」")
    assert line.text.startswith("“") and line.text.endswith("”")
    line = reading(translator, 1, "zh").translate("「A dog runs . The cat sleeps .」")
    assert line.text.startswith("「") and line.text.endswith("」")


def test_a_prefix_is_of_a_whole_line(single):
    """It may have several sentences itself."""
    line = single.translate(TWO, prefixes="die katze")
    assert line.at_risk and not line.by_sentence and line.text.startswith("die katze")


def test_a_tag_is_read_before_every_sentence(translator):
    tagged = Translator(
        translator.params,
        translator.model,
        translator.vocabularies,
        translator.config,
        src_lang="en",
        tags=["<2de>", ""],
        training_text=TrainingText(1, 1.0),
    )
    encode = translator.vocabularies.src.encode
    with_tags = [f"<2de> {text}" for text in SENTENCES[:2]]
    (tokens,) = encode([f"<2de> {TWO}"])
    _, of_pieces = tagged._preparer.cut(f"<2de> {TWO}", tokens, "auto")
    assert of_pieces == encode(with_tags)

    line, *alone = tagged.translate([f"<2de> {TWO}", *with_tags])
    assert line.by_sentence
    assert line.text == " ".join(part.text for part in alone)
    (scored,) = tagged.score([(f"<2de> {TWO}", line.tokens)])
    assert scored.score == pytest.approx(line.score, abs=1e-4)


def test_in_doubt_nothing_is_cut(single):
    for line in ("the man met mr. jones and dr. lee.", "A man says: 'i . e . this'"):
        assert not single.translate(line).by_sentence


def test_constraints_are_of_a_whole_line_which_is_said(single, caplog):
    line = single.translate(TWO, constraints=[["hund"]])
    assert line.at_risk and not line.by_sentence and "hund" in line.text
    assert "1 of 1 lines have several sentences" in caplog.text


def test_what_the_model_reads_together_is_not_at_risk(translator, caplog):
    assert not reading(translator, 2).translate(TWO).at_risk
    assert not caplog.messages


def test_the_score_of_a_translation_is_its_own(single):
    translation = single.translate(TWO)
    (by_tokens,) = single.score([(TWO, translation.tokens)])
    assert by_tokens.score == pytest.approx(translation.score, abs=1e-4)
    assert by_tokens.tokens.count(EOS) == 2


def test_an_empty_last_part_is_a_part(single):
    tokens = (*single.translate(SENTENCES[0]).tokens, EOS)
    (line,) = single.score([(TWO, tokens)])
    (first, second) = single.score([(SENTENCES[0], tokens[:-1]), (SENTENCES[1], ())])
    expected = first.token_log_probs + second.token_log_probs
    np.testing.assert_allclose(line.token_log_probs, expected, rtol=0, atol=1e-5)


def test_parts_have_to_fit_and_not_their_sum(single):
    longest = (5,) * (MAX_LENGTH - 2)
    (line,) = single.score([(TWO, (*longest, EOS, *longest))])
    assert len(line.tokens) == 2 * (MAX_LENGTH - 1)
    with pytest.raises(OverlongError):
        single.score([(TWO, (*longest, 5, 5, EOS, 5))])


def test_attention_is_of_a_single_part(single):
    with pytest.raises(TargetError, match="was translated in 2 parts"):
        single.attend(TWO, single.translate(TWO).tokens)


def test_a_text_of_as_many_sentences_is_scored_sentence_by_sentence(single):
    targets = ["Ein Hund rennt .", "Die Katze schläft ."]
    pairs = [(TWO, " ".join(targets)), *zip(SENTENCES[:2], targets, strict=True)]
    line, *alone = single.score(pairs)
    expected = sum((scored.token_log_probs for scored in alone), ())
    np.testing.assert_allclose(line.token_log_probs, expected, rtol=0, atol=1e-5)


def test_a_text_of_fewer_sentences_is_scored_whole(single):
    (line,) = single.score([(TWO, "Ein Hund rennt und die Katze schläft .")])
    assert line.tokens.count(EOS) == 1


def test_tokens_of_a_line_kept_whole_are_scored_whole(single):
    translation = single.translate(TWO, several="keep")
    (scored,) = single.score([(TWO, translation.tokens)])
    assert scored.score == pytest.approx(translation.score, abs=1e-4)


def test_alignments_are_of_all_sentences(single):
    translation = single.translate(TWO)
    (alignment,) = single.align([(TWO, translation.tokens)])
    assert list(alignment.src_words) == TWO.split()


def manifest(by_sentences: dict[str, int]) -> dict:
    lines = sum(by_sentences.values())
    lengths = {"src": {"tokens": 200}, "tgt": {"tokens": 300}}
    return {
        "lengths": {"train": lengths},
        "sentences": {"lines": lines, "by_sentences": by_sentences},
    }


@pytest.mark.parametrize(
    ("by_sentences", "together"),
    [({"1": 100}, 1), ({"1": 99, "2": 1}, 1), ({"1": 97, "2": 1, "4": 2}, 4), ({"3": 100}, 3)],
)
def test_how_many_sentences_are_known_follows_from_the_share_of_lines(by_sentences, together):
    assert KNOWN_SHARE == 0.02
    assert TrainingText.of(manifest(by_sentences)).together == together


def test_a_run_says_what_its_training_text_was(tmp_path):
    run = make_run(tmp_path / "run", {1: None})
    assert Translator.load(run.path).training_text is None
    run.data.mkdir()
    recorded = manifest({"1": 9})
    place = run.data / "manifest.json"
    place.write_text(json.dumps(recorded))
    assert Translator.load(run.path).training_text == TrainingText(1, 1.5)
    del recorded["sentences"]  # as earlier versions wrote it
    place.write_text(json.dumps(recorded))
    assert Translator.load(run.path).together is None
    del recorded["lengths"]  # as the first versions wrote it
    place.write_text(json.dumps(recorded))
    assert Translator.load(run.path).training_text == TrainingText(None, None)
    place.write_text("[]")
    with pytest.raises(RunDirectoryError, match="is not valid"):
        Translator.load(run.path)


def test_lines_that_the_model_reads_are_not_at_risk_if_all_are_kept(translator):
    whole = reading(translator, 2).with_whole_lines()
    two, three = whole.translate([TWO, THREE])
    assert not two.at_risk and three.at_risk and not three.by_sentence


def test_whole_lines_may_be_asked_for(single):
    whole = single.with_whole_lines()
    assert not whole.translate(TWO, several="auto").by_sentence
    assert whole.score([(TWO, "Ein Hund . Er rennt .")])[0].tokens.count(EOS) == 1


@pytest.mark.parametrize(("ratio", "short"), [(1.0, False), (100.0, True)])
def test_an_output_that_is_far_too_short_is_marked(translator, ratio, short):
    line = "The small cat sees a big dog ."
    translator = reading(translator, 1, ratio=ratio).with_config(max_ratio=1.0, max_extra_tokens=9)
    blank, translation, word = translator.translate(["", line, "a"])
    assert translation.short == (3 * len(translation.tokens) < ratio * tokens_of(translator, line))
    assert translation.short or not short
    assert not blank.short and not word.short


def tokens_of(translator: Translator, line: str) -> int:
    return len(translator.vocabularies.src.encode([line])[0])
