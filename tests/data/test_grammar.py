"""The built-in grammar against hand-written German: order, agreement, negation, numbers, dates."""

from __future__ import annotations

import pytest

from flaxformer_mt.data.grammar import german, words as d
from flaxformer_mt.data.grammar.phrases import DeadEnd, clock, date, half_past
from flaxformer_mt.data.grammar.trees import NounPhrase
from flaxformer_mt.data.grammar.words import CARDINALS
from flaxformer_mt.data.synthetic import pairs


def np(
    determiner: d.Determiner, word: str, described: str = "", plural: bool = False
) -> NounPhrase:
    noun = next(noun for noun in d.NOUNS if noun.english[0] == word)
    adjective = next((one for one in d.ADJECTIVES if one.english == described), None)
    return NounPhrase(determiner, noun, plural, "object", adjective)


# Pairs of the corpus, checked by hand. If the grammar draws others, check as many anew.
CHECKED = """\
Who is sending her his boring books?
Wer schickt ihr seine langweiligen Bücher?
Whom did the queens and their pupils help?
Wem haben die Königinnen und ihre Schüler geholfen?
Which blue pictures will the painters find?
Welche blauen Bilder werden die Maler finden?
Why is their painter not thanking him at four o'clock?
Warum dankt ihr Maler ihm um vier Uhr nicht?
Do they look for you?
Suchen sie dich?
In a church, he gets up.
In einer Kirche steht er auf.
I have gotten up.
Ich bin aufgestanden.
They ate cheap cheese without this bread on Saturday.
Sie haben am Samstag billigen Käse ohne dieses Brot gegessen.
On the ninth of January, they brought along four small pears.
Am neunten Januar haben sie vier kleine Birnen mitgebracht.
The uncle of their brother, all waitresses will understand.
Den Onkel ihres Bruders werden alle Kellnerinnen verstehen.
Their judge has not thrown away a gift.
Ihr Richter hat kein Geschenk weggeworfen.
Of course, he is not small.
Natürlich ist er nicht klein.
No sister was a small nurse.
Keine Schwester war eine kleine Krankenschwester.
She does not follow the tourists if we fall asleep.
Sie folgt den Touristen nicht, falls wir einschlafen.
His lazy queen and a woman do not forget long stories now.
Seine faule Königin und eine Frau vergessen jetzt keine langen Geschichten.
When these colleagues hiked around the airports, the king was not sick.
Als diese Kollegen um die Flughäfen gewandert sind, war der König nicht krank.
When this aunt runs around their market, the uncle wants to play.
Wenn diese Tante um ihren Markt läuft, will der Onkel spielen.
She will call the neighbor who will be bad.
Sie wird den Nachbarn, der schlecht sein wird, anrufen.
On Monday, these colleagues will sell their cake that a king is not buying.
Am Montag werden diese Kollegen ihren Kuchen, den ein König nicht kauft, verkaufen.
Did the beautiful queen ask whether the woman had to find the horse recently?
Hat die schöne Königin gefragt, ob die Frau neulich das Pferd finden musste?
We want to put a modern guitar on a box.
Wir wollen eine moderne Gitarre auf eine Kiste legen.
You could hike into their hotels before the wedding.
Du konntest vor der Hochzeit in ihre Hotels wandern.
The nurse was as poor as the beautiful father.
Die Krankenschwester war so arm wie der schöne Vater.
The young neighbor will listen to the friendly painters.
Der junge Nachbar wird den freundlichen Malern zuhören.
Unfortunately, sixty-six nurses go to the garden.
Leider gehen sechsundsechzig Krankenschwestern zum Garten.
Do the buses cost six thousand euros?
Kosten die Busse sechstausend Euro?
At half past nine, you give a sad baker the ring of the son.
Um halb zehn gibst du einem traurigen Bäcker den Ring des Sohnes.
"""


def test_sentences_are_german_as_it_is_written():
    lines = CHECKED.splitlines()
    assert set(zip(lines[::2], lines[1::2], strict=True)) <= set(pairs("train", 260))


# Nominative, accusative, dative, and in the first half genitive.
DECLINED = {
    # Weak, after the definite article.
    "der alte Mann, den alten Mann, dem alten Mann, des alten Mannes": np(d.THE, "man", "old"),
    "die schwarze Katze, die schwarze Katze, der schwarzen Katze, der schwarzen Katze": np(
        d.THE, "cat", "black"
    ),
    "das neue Buch, das neue Buch, dem neuen Buch, des neuen Buches": np(d.THE, "book", "new"),
    "der junge Junge, den jungen Jungen, dem jungen Jungen, des jungen Jungen": np(
        d.THE, "boy", "young"
    ),
    # Mixed, after the indefinite article.
    "ein alter Mann, einen alten Mann, einem alten Mann, eines alten Mannes": np(d.A, "man", "old"),
    "eine rote Tür, eine rote Tür, einer roten Tür, einer roten Tür": np(d.A, "door", "red"),
    "ein dunkles Haus, ein dunkles Haus, einem dunklen Haus, eines dunklen Hauses": np(
        d.A, "house", "dark"
    ),
    # Strong, and plurals.
    "heißer Kaffee, heißen Kaffee, heißem Kaffee": np(d.BARE, "coffee", "hot"),
    "heiße Milch, heiße Milch, heißer Milch": np(d.BARE, "milk", "hot"),
    "heißes Wasser, heißes Wasser, heißem Wasser": np(d.BARE, "water", "hot"),
    "müde Kinder, müde Kinder, müden Kindern": np(d.BARE, "child", "tired", plural=True),
    "die müden Kinder, die müden Kinder, den müden Kindern": np(
        d.THE, "child", "tired", plural=True
    ),
    "unsere müden Kinder, unsere müden Kinder, unseren müden Kindern": np(
        d.POSSESSIVES[4], "child", "tired", plural=True
    ),
    "viele teure Autos, viele teure Autos, vielen teuren Autos": np(
        d.MANY, "car", "expensive", plural=True
    ),
    "alle teuren Autos, alle teuren Autos, allen teuren Autos": np(
        d.ALL, "car", "expensive", plural=True
    ),
    "jeder Kollege, jeden Kollegen, jedem Kollegen": np(d.EVERY, "colleague"),
}


@pytest.mark.parametrize(("forms", "phrase"), DECLINED.items())
def test_declension(forms, phrase):
    for case, form in enumerate(forms.split(", ")):
        out: list[str] = []
        german.noun_phrase(out, phrase, case)
        assert " ".join(out) == form


NUMBERS = {
    0: "zero = null",
    1: "one = eins",
    7: "seven = sieben",
    12: "twelve = zwölf",
    16: "sixteen = sechzehn",
    17: "seventeen = siebzehn",
    20: "twenty = zwanzig",
    21: "twenty-one = einundzwanzig",
    30: "thirty = dreißig",
    42: "forty-two = zweiundvierzig",
    66: "sixty-six = sechsundsechzig",
    77: "seventy-seven = siebenundsiebzig",
    100: "one hundred = hundert",
    105: "one hundred and five = hundertfünf",
    345: "three hundred and forty-five = dreihundertfünfundvierzig",
    1000: "one thousand = tausend",
    1100: "one thousand one hundred = tausendeinhundert",
    2016: "two thousand and sixteen = zweitausendsechzehn",
    9999: "nine thousand nine hundred and ninety-nine = neuntausendneunhundertneunundneunzig",
}


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_in_words(number):
    assert " = ".join(CARDINALS[number]) == NUMBERS[number]


def test_every_number_has_its_own_words():
    for words in zip(*CARDINALS, strict=True):
        assert len(set(words)) == len(words) == 10_000


@pytest.mark.parametrize(
    ("day", "month", "src", "tgt"),
    [
        (1, 1, "on the first of January", "am ersten Januar"),
        (3, 5, "on the third of May", "am dritten Mai"),
        (7, 3, "on the seventh of March", "am siebten März"),
        (21, 10, "on the twenty-first of October", "am einundzwanzigsten Oktober"),
        (31, 12, "on the thirty-first of December", "am einunddreißigsten Dezember"),
    ],
)
def test_dates(day, month, src, tgt):
    assert date(d.ORDINALS[day - 1], d.MONTHS[month - 1]) == (src, tgt)


def test_there_is_no_thirtieth_of_february():
    for day, month in ((29, 1), (30, 3)):
        with pytest.raises(DeadEnd):
            date(d.ORDINALS[day], d.MONTHS[month])


def test_clock_times():
    assert clock(1) == ("at one o'clock", "um ein Uhr")
    assert half_past(3) == ("at half past three", "um halb vier")
    assert half_past(12) == ("at half past twelve", "um halb eins")


def test_english_words_of_a_class_have_one_german_lemma():
    """Two lemmas for one English word would leave the choice to chance."""
    assert len({noun.english[0] for noun in d.NOUNS}) == len(d.NOUNS) == 149
    assert len({adjective.english for adjective in d.ADJECTIVES}) == len(d.ADJECTIVES) == 49
    verbs = {(verb.english[0], verb.english_particle, verb.frame) for verb in d.VERBS}
    assert len(verbs) == len(d.VERBS) == 72
