"""The built-in grammar against hand-written German: order, agreement, negation, numbers, dates."""

from __future__ import annotations

import pytest

from flaxformer_mt.data.grammar import german, words as d
from flaxformer_mt.data.grammar.phrases import DeadEnd, clock, date, half_past
from flaxformer_mt.data.grammar.trees import NounPhrase
from flaxformer_mt.data.grammar.words import CARDINALS
from flaxformer_mt.data.synthetic import pairs

# Pairs of the corpus, checked by hand. If the grammar draws others, check as many anew.
CHECKED = """\
Who is sending her his boring books?
Wer schickt ihr seine langweiligen Bücher?
Whom did the queens and their pupils help?
Wem haben die Königinnen und ihre Schüler geholfen?
Why is their painter not thanking him at four o'clock?
Warum dankt ihr Maler ihm um vier Uhr nicht?
In a church, he gets up.
In einer Kirche steht er auf.
The uncle of their brother, all waitresses will understand.
Den Onkel ihres Bruders werden alle Kellnerinnen verstehen.
Their judge has not thrown away a gift.
Ihr Richter hat kein Geschenk weggeworfen.
She does not follow the tourists if we fall asleep.
Sie folgt den Touristen nicht, falls wir einschlafen.
When these colleagues hiked around the airports, the king was not sick.
Als diese Kollegen um die Flughäfen gewandert sind, war der König nicht krank.
She will call the neighbor who will be bad.
Sie wird den Nachbarn, der schlecht sein wird, anrufen.
On Monday, these colleagues will sell their cake that a king is not buying.
Am Montag werden diese Kollegen ihren Kuchen, den ein König nicht kauft, verkaufen.
Did the beautiful queen ask whether the woman had to find the horse recently?
Hat die schöne Königin gefragt, ob die Frau neulich das Pferd finden musste?
We want to put a modern guitar on a box.
Wir wollen eine moderne Gitarre auf eine Kiste legen.
The nurse was as poor as the beautiful father.
Die Krankenschwester war so arm wie der schöne Vater.
At half past nine, you give a sad baker the ring of the son.
Um halb zehn gibst du einem traurigen Bäcker den Ring des Sohnes.
"""


def test_sentences_are_german_as_it_is_written():
    lines = CHECKED.splitlines()
    assert set(zip(lines[::2], lines[1::2], strict=True)) <= set(pairs("train", 260))


# Determiner, noun, adjective; nominative, accusative, dative, and of some genitive.
DECLINED = {
    (d.THE, "man", "old"): "der alte Mann, den alten Mann, dem alten Mann, des alten Mannes",
    (d.THE, "cat", "black"): "die schwarze Katze, die schwarze Katze, der schwarzen Katze",
    (d.THE, "boy", "young"): "der junge Junge, den jungen Jungen, dem jungen Jungen",
    (d.A, "man", "old"): "ein alter Mann, einen alten Mann, einem alten Mann, eines alten Mannes",
    (d.A, "house", "dark"): "ein dunkles Haus, ein dunkles Haus, einem dunklen Haus",
    (d.BARE, "coffee", "hot"): "heißer Kaffee, heißen Kaffee, heißem Kaffee",
    (d.BARE, "child", "tired", "+"): "müde Kinder, müde Kinder, müden Kindern",
    (d.THE, "child", "tired", "+"): "die müden Kinder, die müden Kinder, den müden Kindern",
    (d.MANY, "car", "expensive", "+"): "viele teure Autos, viele teure Autos, vielen teuren Autos",
    (d.ALL, "car", "expensive", "+"): "alle teuren Autos, alle teuren Autos, allen teuren Autos",
}


def test_declension():
    nouns = {noun.english[0]: noun for noun in d.NOUNS}
    adjectives = {adjective.english: adjective for adjective in d.ADJECTIVES}
    for (determiner, noun, adjective, *plural), forms in DECLINED.items():
        phrase = NounPhrase(
            determiner, nouns[noun], bool(plural), "object", adjectives.get(adjective)
        )
        for case, form in enumerate(forms.split(", ")):
            out: list[str] = []
            german.noun_phrase(out, phrase, case)
            assert " ".join(out) == form


NUMBERS = {
    0: "zero = null",
    1: "one = eins",
    17: "seventeen = siebzehn",
    21: "twenty-one = einundzwanzig",
    66: "sixty-six = sechsundsechzig",
    100: "one hundred = hundert",
    105: "one hundred and five = hundertfünf",
    345: "three hundred and forty-five = dreihundertfünfundvierzig",
    1000: "one thousand = tausend",
    1100: "one thousand one hundred = tausendeinhundert",
    9999: "nine thousand nine hundred and ninety-nine = neuntausendneunhundertneunundneunzig",
}


def test_numbers_in_words():
    assert {number: " = ".join(CARDINALS[number]) for number in NUMBERS} == NUMBERS
    for words in zip(*CARDINALS, strict=True):
        assert len(set(words)) == len(words) == 10_000


def test_dates_and_times():
    assert date(d.ORDINALS[6], d.MONTHS[2]) == ("on the seventh of March", "am siebten März")
    german_date = "am einunddreißigsten Dezember"
    assert date(d.ORDINALS[30], d.MONTHS[11]) == ("on the thirty-first of December", german_date)
    for day, month in ((29, 1), (30, 3)):
        with pytest.raises(DeadEnd):
            date(d.ORDINALS[day], d.MONTHS[month])
    assert clock(1) == ("at one o'clock", "um ein Uhr")
    assert half_past(3) == ("at half past three", "um halb vier")
    assert half_past(12) == ("at half past twelve", "um halb eins")


def test_english_words_of_a_class_have_one_german_lemma():
    """Two lemmas for one English word would leave the choice to chance."""
    assert len({noun.english[0] for noun in d.NOUNS}) == len(d.NOUNS) == 149
    assert len({adjective.english for adjective in d.ADJECTIVES}) == len(d.ADJECTIVES) == 49
    verbs = {(verb.english[0], verb.english_particle, verb.frame) for verb in d.VERBS}
    assert len(verbs) == len(d.VERBS) == 72
