"""The paper's BLEU: each step by hand, then the number."""

from __future__ import annotations

import math

import pytest
import sacrebleu

from flaxformer_mt.evaluation.metrics import measure
from flaxformer_mt.evaluation.paper_protocol import (
    PaperBleu,
    has_rules_for,
    normalize_punctuation,
    prepare,
    protocol_note,
    split_compounds,
)

AT = "##AT##-##AT##"


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("rich-text format", f"rich {AT} text format"),
        ("E-Mail-Adresse", f"E {AT} Mail {AT} Adresse"),
        # Matches take a character on each side and do not overlap.
        ("a-b-c", f"a {AT} b-c"),
        ("a-b-c-d", f"a {AT} b-c {AT} d"),
        ("ab-cd-ef", f"ab {AT} cd {AT} ef"),
        ("x--y", f"x {AT} -y"),
        ("---", f"- {AT} -"),
        # Not a compound: no character on one side.
        ("Vor- und Nachteile", "Vor- und Nachteile"),
        ("so - oder -so", "so - oder -so"),
        ("-", "-"),
        ("1999-2000 , U-20", f"1999 {AT} 2000 , U {AT} 20"),
    ],
)
def test_compounds(text: str, split: str) -> None:
    assert split_compounds(text) == split


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("„Ja“, sagte er, ‚nein‘", "\"Ja\", sagte er, 'nein'"),
        ("“Yes,” it’s ‟odd‛", '"Yes," it\'s "odd\''),
        ("so…", "so..."),
        ("（１２３，４５６％）！？：；～", "(123,456%)!?:;~"),
        ("あ。い．う、え", "あ. い. う,え"),
        ("「引用」《書》〈a〉【b】━∶", '"引用""書"<a>[b]-:'),
        # Not touched by the scripts that the authors used.
        ("«oui» – non — 5‐6", "«oui» – non — 5‐6"),
    ],
)
def test_punctuation(text: str, plain: str) -> None:
    assert normalize_punctuation(text) == plain


def test_the_steps_follow_each_other() -> None:
    line = "„Die Nord-Süd-Achse“, sagt Dr. Ohm…"
    assert prepare(line, "de") == f'" Die Nord {AT} Süd {AT} Achse " , sagt Dr. Ohm ...'
    # Compounds are split in German alone.
    assert prepare("a rich-text file", "en") == "a rich-text file"


def test_a_score_worked_out_by_hand() -> None:
    hypothesis = ['"A-B c d"']  # " A ##AT##-##AT## B c d "
    reference = ["„A-B c e“"]  # " A ##AT##-##AT## B c e "
    (measured,) = measure([PaperBleu(language="de")], hypothesis, reference)
    assert measured.totals.tolist() == [7, 7, 6, 4, 3, 2, 7, 6, 5, 4]
    assert measured.score == pytest.approx(
        100 * math.exp(math.log(6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) / 4)
    )


def test_hyphens_raise_it_above_sacrebleu_s() -> None:
    """As in the paper: more tokens that are easy to get right."""
    hypotheses = ["Die E-Mail-Adresse ist neu .", "Ein Nord-Süd-Dialog begann 1999-2000 dort ."]
    references = ["Die E-Mail-Adresse war neu .", "Ein Nord-Süd-Dialog begann 1999-2000 hier ."]
    (measured,) = measure([PaperBleu(language="de")], hypotheses, references)
    assert measured.score > sacrebleu.corpus_bleu(hypotheses, [references]).score


def test_case_counts_and_no_order_is_smoothed() -> None:
    hypothesis, reference = ["ein Haus am See hier"], ["Ein Haus am See dort"]
    (measured,) = measure([PaperBleu(language="de")], hypothesis, reference)
    assert measured.totals.tolist() == [5, 5, 3, 2, 1, 0, 5, 4, 3, 2]
    assert measured.score == 0
    assert measured.sentence_scores[0] > 0


def test_a_score_of_an_earlier_protocol_is_marked() -> None:
    now = PaperBleu(language="de").signature
    assert protocol_note(now) == protocol_note("tok:13a|version:2.6.0") == ""
    assert protocol_note(now.replace("mt.2", "mt.1")) == " (protocol 1)"


def test_the_signature_tells_all_steps() -> None:
    assert PaperBleu(language="de").signature == (
        "nrefs:1|case:mixed|eff:no|norm:quotes|tok:moses-de|compounds:atat|smooth:none|"
        "version:flaxformer_mt.2"
    )
    assert "tok:moses-fr|compounds:no" in PaperBleu(language="fr").signature
    assert has_rules_for("en") and not has_rules_for("cs") and not has_rules_for("")
