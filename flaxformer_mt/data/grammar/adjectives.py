"""The adjectives of the built-in grammar and the three German declensions."""

from __future__ import annotations

import dataclasses

from flaxformer_mt.data.grammar.nouns import expand

WEAK, MIXED, STRONG = range(3)
PARADIGM_NAMES = ("weak", "mixed", "strong")

# ENDINGS[paradigm][case][column]: columns are masculine, feminine, neuter, plural.
ENDINGS = (
    (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en",) * 4, ("en",) * 4),
    (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en",) * 4, ("en",) * 4),
    (
        ("er", "e", "es", "e"),
        ("en", "e", "es", "e"),
        ("em", "er", "em", "en"),
        ("en", "er", "en", "er"),
    ),
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective; `german` is its predicative form, `forms[paradigm][case][column]` the others.

    Two adjectives of one `scale` exclude each other: nothing is both big and small.
    """

    lemma: str
    english: str
    german: str
    forms: tuple[tuple[tuple[str, ...], ...], ...]
    categories: frozenset[str]
    scale: str


# Columns: English, German (with the attributive stem after "|" where it differs), noun categories.
_TABLE = """
    old alt                 people animal thing furniture clothing vehicle text opening place
    young jung              people animal
    new neu                 thing furniture clothing vehicle text opening place
    big groß                animal thing furniture vehicle opening place food
    small klein             people animal thing furniture vehicle opening place food
    good gut                people food dish drink text place
    bad schlecht            people food dish drink text place
    beautiful schön         people animal thing furniture clothing vehicle place
    ugly hässlich           animal thing furniture clothing opening place
    friendly freundlich     people animal
    tired müde|müd          people animal
    sick krank              people animal
    happy glücklich         people
    sad traurig             people text
    famous berühmt          people text place
    rich reich              people
    poor arm                people
    strong stark            people animal
    lazy faul               people animal
    clever klug             people animal
    hungry hungrig          people animal
    nervous nervös          people
    honest ehrlich          people
    expensive teuer|teur    thing furniture clothing vehicle food dish drink
    cheap billig            thing furniture clothing vehicle food dish drink
    red rot                 thing furniture clothing vehicle opening
    blue blau               thing furniture clothing vehicle opening
    green grün              thing furniture clothing vehicle opening
    white weiß              animal furniture clothing thing opening
    black schwarz           animal furniture clothing thing vehicle
    brown braun             animal furniture clothing opening
    heavy schwer            thing furniture opening
    clean sauber            thing clothing vehicle opening
    dirty schmutzig         animal thing clothing vehicle opening
    broken kaputt           thing furniture vehicle opening
    dark dunkel|dunkl       place clothing furniture
    long lang               text
    short kurz              text
    interesting interessant text place
    boring langweilig       text place
    important wichtig       text
    fresh frisch            food dish drink
    cold kalt               dish drink
    hot heiß                dish drink
    sweet süß               food drink
    warm warm               dish drink clothing
    quiet ruhig             place
    modern modern           place vehicle thing
    dangerous gefährlich    animal place
"""


_SCALES = {
    english: scale
    for scale, group in {
        "age": "old young new modern",
        "size": "big small",
        "quality": "good bad",
        "looks": "beautiful ugly",
        "mood": "happy sad",
        "wealth": "rich poor",
        "price": "expensive cheap",
        "color": "red blue green white black brown dark",
        "dirt": "clean dirty",
        "length": "long short",
        "interest": "interesting boring",
        "heat": "cold hot warm fresh",
    }.items()
    for english in group.split()
}


def _read(line: str) -> Adjective:
    english, german, *categories = line.split()
    predicative, _, stem = german.partition("|")
    stem = stem or predicative
    forms = tuple(
        tuple(tuple(stem + ending for ending in case) for case in paradigm) for paradigm in ENDINGS
    )
    scale = _SCALES.get(english, english)
    return Adjective(predicative, english, predicative, forms, frozenset(expand(categories)), scale)


ADJECTIVES: tuple[Adjective, ...] = tuple(_read(line) for line in _TABLE.strip().splitlines())
