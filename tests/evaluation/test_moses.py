"""Tokenisation by hand: what each rule of `tokenizer.perl` is for."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.evaluation import ScoringError
from flaxformer_mt.evaluation.moses import LANGUAGES, _abbreviations, tokenize
from flaxformer_mt.evaluation.paper_protocol import PROTOCOL


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        # Symbols and blanks.
        ("en", 'He said: "No!" (twice)', 'He said : " No ! " ( twice )'),
        ("en", " \ta\u00a0b  c\x00d\n", "a b cd"),
        ("en", "50% of €30; AT&T @home #1", "50 % of € 30 ; AT & T @ home # 1"),
        ("de", "Straße Žižek naïve", "Straße Žižek naïve"),
        ("en", "", ""),
        ("en", "  ", ""),
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
        (
            "de",
            "Hr. Max, Bd. Zwei, inkl. Mehrwertsteuer",
            "Hr . Max , Bd . Zwei , inkl . Mehrwertsteuer",
        ),
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
def test_rules(language: str, text: str, tokens: str) -> None:
    assert tokenize(text, language) == tokens


def test_the_lists_are_those_of_this_protocol() -> None:
    """If a release of SacreMoses changes them, `paper_protocol.PROTOCOL` goes up."""
    lists = repr([sorted(_abbreviations(language).items()) for language in LANGUAGES])
    assert (hashlib.sha256(lists.encode()).hexdigest()[:12], PROTOCOL) == ("7958ffe18291", 2)


@given(st.text(max_size=40) | st.text("a.\ue000'", max_size=9), st.sampled_from(["de", "en", "fr"]))
def test_nothing_is_lost_but_blanks_and_controls(text: str, language: str) -> None:
    kept = [c for c in tokenize(text, language) if not c.isspace()]
    assert kept == [c for c in text if not c.isspace() and c > "\x1f"]


def test_another_language_is_refused() -> None:
    with pytest.raises(ScoringError, match="no tokenisation rules for 'cs': de, en, fr"):
        tokenize("a", "cs")
