"""Determiners, pronouns, prepositions and conjunctions of the built-in grammar."""

from __future__ import annotations

import dataclasses

from flaxformer_mt.data.grammar.adjectives import MIXED, STRONG, WEAK
from flaxformer_mt.data.grammar.nouns import ACCUSATIVE, DATIVE, GENITIVE

Declension = tuple[tuple[str, str, str, str], ...]
"""Forms by case (four rows) and column (masculine, feminine, neuter, plural)."""

FIRST, SECOND, THIRD, PLURAL_PERSON = range(4)
"""Rows of a German verb's present: ich, du, er, wir."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    """A determiner: English singular and plural, German declension, the adjective's paradigm.

    `kind` is its class in constructions; a `negative` one carries the clause's negation ("not a" is
    "kein"), so that no "nicht" is needed.
    """

    english: tuple[str, str]
    german: Declension
    paradigm: int
    kind: str
    negative: bool = False


def _der_word(stem: str) -> Declension:
    """dieser, jeder, welcher, alle: the strong endings."""
    return (
        (stem + "er", stem + "e", stem + "es", stem + "e"),
        (stem + "en", stem + "e", stem + "es", stem + "e"),
        (stem + "em", stem + "er", stem + "em", stem + "en"),
        (stem + "es", stem + "er", stem + "es", stem + "er"),
    )


def _ein_word(word: str, stem: str = "") -> Declension:
    """ein, kein, mein: no ending in the masculine nominative and in the neuter of both."""
    stem = stem or word
    return (
        (word, stem + "e", word, stem + "e"),
        (stem + "en", stem + "e", word, stem + "e"),
        (stem + "em", stem + "er", stem + "em", stem + "en"),
        (stem + "es", stem + "er", stem + "es", stem + "er"),
    )


_NOTHING: Declension = (("",) * 4,) * 4
_DER: Declension = (
    ("der", "die", "das", "die"),
    ("den", "die", "das", "die"),
    ("dem", "der", "dem", "den"),
    ("des", "der", "des", "der"),
)
RELATIVE: Declension = (
    _DER[0],
    _DER[1],
    ("dem", "der", "dem", "denen"),
    ("dessen", "deren", "dessen", "deren"),
)

THE = Determiner(("the", "the"), _DER, WEAK, "the")
A = Determiner(("a", ""), _ein_word("ein"), MIXED, "a")
BARE = Determiner(("", ""), _NOTHING, STRONG, "bare")
NOT_A = Determiner(("a", ""), _ein_word("kein"), MIXED, "a", negative=True)
NOT_BARE = Determiner(("", ""), _ein_word("kein"), MIXED, "bare", negative=True)
NO = Determiner(("no", "no"), _ein_word("kein"), MIXED, "a", negative=True)
THIS = Determiner(("this", "these"), _der_word("dies"), WEAK, "this")
EVERY = Determiner(("every", ""), _der_word("jed"), WEAK, "this")
WHICH = Determiner(("which", "which"), _der_word("welch"), WEAK, "this")
ALL = Determiner(("", "all"), _der_word("all"), WEAK, "this")
MANY = Determiner(("", "many"), _der_word("viel"), STRONG, "quantity")
SOME = Determiner(("", "some"), _der_word("einig"), STRONG, "quantity")
COUNTED = Determiner(("", ""), _NOTHING, STRONG, "quantity")
"""Stands before a number, which the noun phrase holds."""

POSSESSIVES: tuple[Determiner, ...] = tuple(
    Determiner((english, english), declension, MIXED, "possessive")
    for english, declension in (
        ("my", _ein_word("mein")),
        ("your", _ein_word("dein")),
        ("his", _ein_word("sein")),
        ("her", _ein_word("ihr")),
        ("our", _ein_word("unser")),
        ("their", _ein_word("ihr")),
    )
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pronoun:
    """A personal or interrogative pronoun: English subject and object, German by case."""

    english: tuple[str, str]
    german: tuple[str, str, str]
    person: int
    interrogative: bool = False


PRONOUNS: tuple[Pronoun, ...] = (
    Pronoun(("I", "me"), ("ich", "mich", "mir"), FIRST),
    Pronoun(("you", "you"), ("du", "dich", "dir"), SECOND),
    Pronoun(("he", "him"), ("er", "ihn", "ihm"), THIRD),
    Pronoun(("she", "her"), ("sie", "sie", "ihr"), THIRD),
    Pronoun(("we", "us"), ("wir", "uns", "uns"), PLURAL_PERSON),
    Pronoun(("they", "them"), ("sie", "sie", "ihnen"), PLURAL_PERSON),
)
SHE = PRONOUNS[3]
WHO = Pronoun(("who", "whom"), ("wer", "wen", "wem"), THIRD, interrogative=True)
WHAT = Pronoun(("what", "what"), ("was", "was", "was"), THIRD, interrogative=True)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Preposition:
    """A preposition and the case it governs in this use (two-way ones appear twice)."""

    english: str
    german: str
    case: int


WITH = Preposition("with", "mit", DATIVE)
WITHOUT = Preposition("without", "ohne", ACCUSATIVE)
FOR = Preposition("for", "für", ACCUSATIVE)
TO = Preposition("to", "zu", DATIVE)
FROM = Preposition("from", "von", DATIVE)
INTO = Preposition("into", "in", ACCUSATIVE)
THROUGH = Preposition("through", "durch", ACCUSATIVE)
AROUND = Preposition("around", "um", ACCUSATIVE)
ONTO = Preposition("onto", "auf", ACCUSATIVE)
ON = Preposition("on", "auf", ACCUSATIVE)
BEHIND = Preposition("behind", "hinter", DATIVE)
NEXT_TO = Preposition("next to", "neben", DATIVE)
IN_FRONT_OF = Preposition("in front of", "vor", DATIVE)
AFTER = Preposition("after", "nach", DATIVE)
BEFORE = Preposition("before", "vor", DATIVE)
DURING = Preposition("during", "während", GENITIVE)

CONTRACTIONS: dict[tuple[str, str], str] = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("in", "das"): "ins",
    ("an", "das"): "ans",
}
"""Preposition and article that German writes as one word."""

CONJUNCTIONS: dict[str, tuple[str, str]] = {
    "because": ("because", "weil"),
    "although": ("although", "obwohl"),
    "if": ("if", "falls"),
    "before": ("before", "bevor"),
    "when": ("when", "wenn"),
    "that": ("that", "dass"),
    "whether": ("whether", "ob"),
}
"""Subordinate clause kinds. "when" is "als" over a simple past, which the source shows."""
