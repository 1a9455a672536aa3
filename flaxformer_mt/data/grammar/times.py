"""When and how: time expressions, dates, clock times and adverbs of the built-in grammar."""

from __future__ import annotations

import dataclasses

from flaxformer_mt.data.grammar.numbers import CARDINALS, english_ordinal, german_ordinal

ANY, PAST, NOW, HABIT, FUTURE, PERFECT = "any", "past", "now", "habit", "future", "perfect"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Adverb:
    """A fixed adverbial; `tense` restricts a time to the tenses it fits ("yesterday": the past)."""

    lemma: str
    english: str
    german: str
    tense: str = ANY


def _adverbs(table: str, tense: str = ANY) -> tuple[Adverb, ...]:
    pairs = (line.strip().split(" = ") for line in table.strip().splitlines())
    return tuple(Adverb(german, english, german, tense) for english, german in pairs)


SIMPLE_TIMES: tuple[Adverb, ...] = (
    *_adverbs(
        """
        in the morning = am Morgen
        in the afternoon = am Nachmittag
        in the evening = am Abend
        at night = in der Nacht
        on the weekend = am Wochenende
        in spring = im Frühling
        in summer = im Sommer
        in autumn = im Herbst
        in winter = im Winter
        today = heute
        """
    ),
    *_adverbs(
        """
        yesterday = gestern
        last week = letzte Woche
        last year = letztes Jahr
        recently = neulich
        """,
        PAST,
    ),
    *_adverbs(
        "tomorrow = morgen\nnext week = nächste Woche\nnext year = nächstes Jahr\nsoon = bald",
        FUTURE,
    ),
    *_adverbs("now = jetzt", NOW),
    *_adverbs("every day = jeden Tag\nevery week = jede Woche", HABIT),
    *_adverbs("this week = diese Woche\nthis year = dieses Jahr", PERFECT),
)

DAYS: tuple[Adverb, ...] = _adverbs(
    """
    on Monday = am Montag
    on Tuesday = am Dienstag
    on Wednesday = am Mittwoch
    on Thursday = am Donnerstag
    on Friday = am Freitag
    on Saturday = am Samstag
    on Sunday = am Sonntag
    """
)

MONTHS: tuple[Adverb, ...] = _adverbs(
    """
    January = Januar
    February = Februar
    March = März
    April = April
    May = Mai
    June = Juni
    July = Juli
    August = August
    September = September
    October = Oktober
    November = November
    December = Dezember
    """
)

ORDINALS: tuple[Adverb, ...] = tuple(
    Adverb(german_ordinal(n), english_ordinal(n), german_ordinal(n)) for n in range(1, 32)
)

_LONGEST = dict(zip(MONTHS, (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))
_DAY = {ordinal: number for number, ordinal in enumerate(ORDINALS, start=1)}

HOURS: tuple[int, ...] = tuple(range(1, 13))


def month(name: Adverb) -> tuple[str, str]:
    """ "in May", "im Mai"."""
    return f"in {name.english}", f"im {name.german}"


def exists(ordinal: Adverb, name: Adverb) -> bool:
    """Whether a month has that day: there is no thirtieth of February."""
    return _DAY[ordinal] <= _LONGEST[name]


def date(ordinal: Adverb, name: Adverb) -> tuple[str, str]:
    """ "on the third of May", "am dritten Mai"."""
    return f"on the {ordinal.english} of {name.english}", f"am {ordinal.german} {name.german}"


def clock(hour: int) -> tuple[str, str]:
    """ "at three o'clock", "um drei Uhr"; one is "ein" before "Uhr"."""
    english, german = CARDINALS[hour]
    return f"at {english} o'clock", f"um {'ein' if hour == 1 else german} Uhr"


def half_past(hour: int) -> tuple[str, str]:
    """ "at half past three", "um halb vier": German names the hour that follows."""
    return f"at half past {CARDINALS[hour][0]}", f"um halb {CARDINALS[hour % 12 + 1][1]}"


MANNERS: tuple[Adverb, ...] = _adverbs(
    """
    slowly = langsam
    quickly = schnell
    carefully = vorsichtig
    quietly = leise
    secretly = heimlich
    alone = allein
    patiently = geduldig
    immediately = sofort
    """
)
"""How: after the objects in both languages."""

FREQUENCIES: tuple[Adverb, ...] = _adverbs(
    """
    always = immer
    often = oft
    sometimes = manchmal
    never = nie
    rarely = selten
    usually = meistens
    """
)
"""How often: before the English verb, in the German middle field where a time stands."""

COMMENTS: tuple[Adverb, ...] = _adverbs(
    """
    perhaps = vielleicht
    unfortunately = leider
    of course = natürlich
    fortunately = zum Glück
    therefore = deshalb
    """
)
"""Sentence adverbs: in front, with inversion in German."""
