"""The paper's BLEU: Moses's rules and each further step by hand, then the number."""

import hashlib

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.evaluation import PAPER_LANGUAGES
from flaxformer_mt.evaluation.metrics import ScoringError, measure
from flaxformer_mt.evaluation.paper_protocol import (
    PROTOCOL,
    PaperBleu,
    _abbreviations,
    normalize_punctuation,
    prepare,
    protocol_note,
    split_compounds,
    tokenize,
)

AT = "##AT##-##AT##"


def test_compounds_punctuation_and_how_the_steps_follow_each_other():
    for text, split in {
        "rich-text format": f"rich {AT} text format",
        # Matches take a character on each side and do not overlap.
        "a-b-c": f"a {AT} b-c",
        "a-b-c-d": f"a {AT} b-c {AT} d",
        "x--y": f"x {AT} -y",
        "---": f"- {AT} -",
        # Not a compound: no character on one side.
        "Vor- und Nachteile": "Vor- und Nachteile",
        "so - oder -so": "so - oder -so",
    }.items():
        assert split_compounds(text) == split
    for text, plain in {
        "„Ja“, sagte er, ‚nein‘": "\"Ja\", sagte er, 'nein'",
        "“Yes,” it’s ‟odd‛": '"Yes," it\'s "odd\'',
        "so…": "so...",
        "（１２３，４５６％）！？：；～": "(123,456%)!?:;~",
        "あ。い．う、え": "あ. い. う,え",
        "「引用」《書》〈a〉【b】━∶": '"引用""書"<a>[b]-:',
        # Not touched by the scripts that the authors used.
        "«oui» – non — 5‐6": "«oui» – non — 5‐6",
    }.items():
        assert normalize_punctuation(text) == plain
    line = "„Die Nord-Süd-Achse“, sagt Dr. Ohm…"
    assert prepare(line, "de") == f'" Die Nord {AT} Süd {AT} Achse " , sagt Dr. Ohm ...'
    # Compounds are split in German alone.
    assert prepare("a rich-text file", "en") == "a rich-text file"
    with pytest.raises(ScoringError, match="no tokenisation rules for 'cs': de, en, fr"):
        prepare("a", "cs")


def test_a_score_worked_out_by_hand():
    hypothesis = ['"A-B c d"']  # " A ##AT##-##AT## B c d "
    reference = ["„A-B c e“"]  # " A ##AT##-##AT## B c e "
    (measured,) = measure([PaperBleu(language="de")], hypothesis, reference)
    assert measured.totals.tolist() == [7, 7, 6, 4, 3, 2, 7, 6, 5, 4]
    assert measured.score == pytest.approx(100 * (6 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** 0.25)


def test_case_counts_and_no_order_is_smoothed():
    hypothesis, reference = ["ein Haus am See hier"], ["Ein Haus am See dort"]
    (measured,) = measure([PaperBleu(language="de")], hypothesis, reference)
    assert measured.totals.tolist() == [5, 5, 3, 2, 1, 0, 5, 4, 3, 2]
    assert measured.score == 0
    assert measured.sentence_scores[0] > 0


def test_a_signature_names_all_steps_and_tables_note_an_earlier_protocol():
    signature = PaperBleu(language="de").signature
    assert signature == (
        "nrefs:1|case:mixed|eff:no|norm:quotes|tok:moses-de|compounds:atat|smooth:none|"
        "version:flaxformer_mt.2"
    )
    assert "tok:moses-fr|compounds:no" in PaperBleu(language="fr").signature
    assert protocol_note(signature) == protocol_note("tok:13a|version:2.6.0") == ""
    assert protocol_note(signature.replace("mt.2", "mt.1")) == " (protocol 1)"


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        # Symbols and blanks.
        ("en", 'He said: "No!" (twice)', 'He said : " No ! " ( twice )'),
        ("en", " \ta\u00a0b  c\x00d\n", "a b cd"),
        ("en", "50% of €30; AT&T @home #1", "50 % of € 30 ; AT & T @ home # 1"),
        ("de", "Straße Žižek naïve", "Straße Žižek naïve"),
        # Hyphens and backticks stay.
        ("de", "E-Mail-Adresse - ja", "E-Mail-Adresse - ja"),
        ("en", "`so` be-it", "`so` be-it"),
        # Commas: not within numbers, but at a sentence's end, and each of a row of them.
        ("en", "5,300 men, 6, and a,b,c,d", "5,300 men , 6 , and a , b , c , d"),
        ("en", "it was 6,", "it was 6 ,"),
        # Periods: last words, abbreviations, initials, what goes on in lower case, numbers.
        ("en", "Mr. Smith of the U.S. Army left.", "Mr. Smith of the U.S. Army left ."),
        ("en", "It ended. Then approx. five.", "It ended . Then approx. five ."),
        ("en", "See No. 5. No. That is all.", "See No. 5 . No . That is all ."),
        ("en", "So says J. Doe, Dr.", "So says J. Doe , Dr ."),
        ("en", "at 5 p.m.", "at 5 p.m ."),
        ("de", "Am 5. Mai 1999. Danach Nr. 7.", "Am 5. Mai 1999 . Danach Nr. 7 ."),
        ("de", "z.B. Hunde usw. Und", "z.B. Hunde usw. Und"),
        # The abbreviations are Moses's, with what it has from English and without some of German.
        ("de", "Lt. Adm. Kurz, Corp. Nos. Eins", "Lt. Adm. Kurz , Corp. Nos. Eins"),
        ("de", "Hr. Max, Bd. Zwei, inkl. Mehr", "Hr . Max , Bd . Zwei , inkl . Mehr"),
        ("en", "On Mar. 5, Sept. Nos. Art. Art. 9", "On Mar. 5 , Sept . Nos. Art . Art. 9"),
        ("fr", "Mme. Bel, al. Ces SS. Amis", "Mme . Bel , al. Ces SS. Amis"),
        ("fr", "M. Dupont, p. ex. la p. 7.", "M. Dupont , p. ex. la p. 7 ."),
        ("en", ".", "."),
        ("en", ".5 and 3.14", ".5 and 3.14"),
        # Runs of periods.
        ("en", "Well... no.. ....", "Well ... no .. ...."),
        ("en", "...and", "... and"),
        # Apostrophes: to the right, to the left, by themselves.
        ("en", "don't Dogs' 'twas 1990's it's'", "don 't Dogs ' ' twas 1990 's it 's'"),
        ("fr", "l'eau d'où qu'1 'a' aujourd'hui", "l' eau d' où qu ' 1 ' a ' aujourd' hui"),
        ("de", "Ich hab's 'so' gemacht", "Ich hab ' s ' so ' gemacht"),
        ("en", "he said 'stop.'", "he said ' stop . '"),
    ],
)
def test_rules(language, text, tokens):
    assert tokenize(text, language) == tokens


def test_the_lists_are_those_of_this_protocol():
    """If a release of SacreMoses changes them, `paper_protocol.PROTOCOL` goes up."""
    lists = repr([sorted(_abbreviations(language).items()) for language in PAPER_LANGUAGES])
    assert (hashlib.sha256(lists.encode()).hexdigest()[:12], PROTOCOL) == ("7958ffe18291", 2)


@given(st.text(max_size=40) | st.text("a.\ue000'", max_size=9), st.sampled_from(["de", "en", "fr"]))
def test_nothing_is_lost_but_blanks_and_controls(text, language):
    characters = [c for c in tokenize(text, language) if not c.isspace()]
    assert characters == [c for c in text if not c.isspace() and c > "\x1f"]
