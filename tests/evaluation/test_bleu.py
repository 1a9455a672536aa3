"""Scores against sacreBLEU called directly and against values worked out by hand."""

from __future__ import annotations

import pytest
import sacrebleu

from flaxformer_mt.evaluation import corpus_scores

HYPOTHESES = ["The cat sat on the mat.", "Ein Hund läuft, sagt er!", "", "It costs 3.50 (net)."]
REFERENCES = ["The cat sat on a mat.", "Ein Hund rennt, sagt sie!", "Nothing.", "It costs 3.50."]


@pytest.mark.parametrize("lowercase", [False, True])
def test_equals_sacrebleu(lowercase):
    scores = corpus_scores(HYPOTHESES, REFERENCES, lowercase=lowercase)
    bleu = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=lowercase)
    assert scores.bleu == bleu.score
    assert scores.precisions == list(bleu.precisions)
    assert scores.brevity_penalty == bleu.bp
    assert scores.length_ratio == pytest.approx(bleu.ratio)
    if not lowercase:
        assert scores.chrf == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    name = "sacrebleu_13a_lc" if lowercase else "sacrebleu_13a"
    assert set(scores.metrics) == set(scores.signatures) == {name, "chrf"}
    case = "case:lc" if lowercase else "case:mixed"
    assert case in scores.signatures[name] and "tok:13a" in scores.signatures[name]
    assert f"version:{sacrebleu.__version__}" in scores.signatures[name]
    assert case in scores.signatures["chrf"] and "nc:6" in scores.signatures["chrf"]


def test_tokenised_text_is_scored_as_it_stands():
    hypotheses = ["a man , in a hat .", "it 's a don't-know"]
    references = ["a man , with a hat .", "it is a don't-know"]
    scores = corpus_scores(hypotheses, references, tokenized=True)
    bleu = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True)
    assert scores.bleu == bleu.score
    assert scores.bleu_name == "bleu_tokenized_lc"
    assert "tok:none" in scores.signatures["bleu_tokenized_lc"]
    assert scores.reference_tokens == 11
    cased = corpus_scores(hypotheses, ["A man .", "It"], tokenized=True)
    assert cased.bleu_name == "bleu_tokenized"


def test_tokenised_output_scored_as_raw_text_is_noted_and_nothing_is_logged(caplog, capfd):
    lines = ["a man in a hat ."] * 150
    raw = corpus_scores(lines, lines)
    assert raw.bleu == pytest.approx(100) and raw.chrf == pytest.approx(100)
    assert "150 hypotheses end in a separate period" in raw.notes[0]
    assert corpus_scores(lines, lines, tokenized=True).notes == []
    assert not caplog.records and capfd.readouterr() == ("", "")
