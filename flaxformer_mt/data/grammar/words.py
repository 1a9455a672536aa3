"""The words of the built-in grammar with their forms, from the tables beside this file.

A "-" in a table is nothing. Each entry is in its table once.
"""

import csv
import importlib.resources
from collections.abc import Iterator
from typing import NamedTuple

CASES = ("nominative", "accusative", "dative", "genitive")
NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
COLUMNS = ("masculine", "feminine", "neuter", "plural")  # of every German declension
MASCULINE, FEMININE, NEUTER, PLURAL = range(4)
FIRST, SECOND, THIRD, PLURAL_PERSON = range(4)  # rows of a verb's present: ich, du, er, wir
PARADIGM_NAMES = ("weak", "mixed", "strong")
ANY = "any"  # the tense of a time that fits all of them but the perfect

# _ENDINGS[paradigm][case][column] of adjectives.
_ENDINGS = (
    (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en",) * 4, ("en",) * 4),
    (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en",) * 4, ("en",) * 4),
    (
        ("er", "e", "es", "e"),
        ("en", "e", "es", "e"),
        ("em", "er", "em", "en"),
        ("en", "er", "en", "er"),
    ),
)


_Row = dict[str, str]
_PERSONS = ("ich", "du", "er", "wir")


class Noun:
    """A noun with German forms `german[plural][case]`; `static` says "at" it."""

    def __init__(self, row: _Row) -> None:
        self.lemma = row["nominative"]
        self.english = row["english"], row["english_plural"]
        self.gender = ("der", "die", "das").index(row["article"])
        oblique, plural = row["oblique"], row["plural"]
        self.german = (
            (self.lemma, oblique, oblique, row["genitive"]),
            (plural, plural, row["dative_plural"], plural),
        )
        self.category = row["category"]
        self.static = row["at_english"], row["at_german"]
        self.mass = not row["english_plural"]


class Adjective:
    """An adjective that describes nouns of its `categories`.

    `german` is its predicative form, `forms[paradigm][case][column]` are the others. Two adjectives
    of one `scale` exclude each other: nothing is both big and small.
    """

    def __init__(self, row: _Row) -> None:
        self.lemma = self.german = row["german"]
        self.english = row["english"]
        self.forms = [
            [[row["stem"] + ending for ending in case] for case in paradigm]
            for paradigm in _ENDINGS
        ]
        self.categories = frozenset(row["describes"].split())
        self.scale = row["scale"]


class Verb:
    """A verb and what it governs.

    `english` is (base, third person, -ing, past, participle). `present` is German without its
    separable `particle`; `lemma` (the infinitive) and `participle` include it. A `movable` English
    particle stands behind a pronoun object (picks him up). `objects` are alternative pools of noun
    categories. A `preterite` (sein, haben) replaces the perfect as the German past.
    """

    def __init__(self, row: _Row) -> None:
        self.lemma, self.frame = row["german"], row["frame"]
        self.english = tuple(row[x] for x in ("english", "third", "ing", "past", "participle"))
        self.present = tuple(row[person] for person in _PERSONS)
        self.participle = row["german_participle"]
        self.english_particle, self.movable = row["english_particle"], bool(row["movable"])
        self.particle, self.auxiliary = row["particle"], row["auxiliary"]
        self.stative = bool(row["stative"])
        self.objects = tuple(tuple(pool.split()) for pool in row["objects"].split("/") if pool)
        self.preterite = tuple(row[f"preterite_{x}"] for x in _PERSONS if row[f"preterite_{x}"])
        # Not of "read": "they read" would be present or past, and have two translations.
        self.past_is_distinct = row["english"] != row["past"]


class Modal:
    """A modal verb in one tense.

    `english` is the auxiliary that "not" follows; if empty, `finite` (they, she) and `base` are
    full verbs with do-support: wants to, does not want to.
    """

    def __init__(self, row: _Row) -> None:
        self.lemma, self.past = row["german"], bool(row["past"])
        self.tense = "past" if self.past else "present"
        self.english, self.base = row["english"], row["base"]
        self.finite = row["finite"], row["third"]
        self.german = tuple(row[person] for person in _PERSONS)


class Determiner:
    """A determiner: English singular and plural, German by case and column.

    `kind` is its class in constructions, `paradigm` how it inflects adjectives; a `negative` one
    carries the clause's negation ("not a" is "kein"), so that no "nicht" is needed.
    """

    def __init__(self, row: _Row) -> None:
        self.english = row["english"], row["english_plural"]
        self.german = [row[case].split() or [""] * 4 for case in CASES]
        self.paradigm = PARADIGM_NAMES.index(row["paradigm"])
        self.kind, self.negative = row["kind"], bool(row["negative"])


class Adverb(NamedTuple):
    """A fixed adverbial; `tense` restricts a time to the tenses it fits ("yesterday": the past)."""

    english: str
    german: str
    tense: str = ANY

    @property
    def lemma(self) -> str:
        return self.german


class Pronoun(NamedTuple):
    """A personal or interrogative pronoun: English subject and object, German by case."""

    english: tuple[str, str]
    german: tuple[str, ...]
    person: int
    interrogative: bool = False


class Preposition(NamedTuple):
    """A preposition and the case it governs in this use (two-way ones appear twice)."""

    english: str
    german: str
    case: int


def _rows(table: str) -> Iterator[_Row]:
    text = (importlib.resources.files(__package__) / f"{table}.tsv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        yield {column: "" if cell == "-" else cell for column, cell in row.items()}


def _adverbs(kind: str) -> tuple[Adverb, ...]:
    rows = (row for row in _rows("adverbs") if row["kind"] == kind)
    return tuple(Adverb(row["english"], row["german"], row["tense"]) for row in rows)


NOUNS = tuple(map(Noun, _rows("nouns")))
CATEGORIES = tuple(dict.fromkeys(noun.category for noun in NOUNS))
# Of people: only professions are predicates ("a good teacher"), by natural gender.
PEOPLE = ("person", "profession_m", "profession_f")
MASS = frozenset(noun.category for noun in NOUNS if noun.mass)
ADJECTIVES = tuple(map(Adjective, _rows("adjectives")))
VERBS = tuple(map(Verb, _rows("verbs")))  # by frames, which say what arguments they take
COPULA = VERBS[-1]
MODALS = tuple(map(Modal, _rows("modals")))

SIMPLE_TIMES, DAYS, MONTHS = _adverbs("time"), _adverbs("day"), _adverbs("month")
MANNERS, FREQUENCIES = _adverbs("manner"), _adverbs("frequency")
COMMENTS = _adverbs("comment")  # sentence adverbs: in front, with inversion in German

DETERMINERS = {row["name"]: Determiner(row) for row in _rows("determiners")}
THE, A, BARE, NOT_A, NOT_BARE, NO, THIS, EVERY, WHICH, ALL, MANY, SOME, COUNTED = (
    DETERMINERS[name]
    for name in "the a bare not_a not_bare no this every which all many some counted".split()
)
POSSESSIVES = tuple(DETERMINERS[name] for name in "my your his her our their".split())
# The genitive of a relative pronoun is never used.
RELATIVE_PRONOUNS = [*THE.german[:2], ["dem", "der", "dem", "denen"]]

*PRONOUNS, WHO, WHAT = (
    Pronoun(
        (row["english"], row["english_object"]),
        tuple(row[case] for case in CASES[:3]),
        _PERSONS.index(row["person"]),
        bool(row["interrogative"]),
    )
    for row in _rows("pronouns")
)
SHE = PRONOUNS[3]
PREPOSITIONS = {
    row["english"]: Preposition(row["english"], row["german"], CASES.index(row["case"]))
    for row in _rows("prepositions")
}
TO, FROM, WITH, FOR, ON = (PREPOSITIONS[name] for name in ("to", "from", "with", "for", "on"))
# Of subordinate clauses. "when" is "als" over a simple past, which the source shows.
CONJUNCTIONS = {row["english"]: row["german"] for row in _rows("conjunctions")}

_NUMBERS = tuple(_rows("numbers"))
ORDINALS = tuple(Adverb(row["english_ordinal"], row["german_ordinal"]) for row in _NUMBERS[1:32])
"""Of 1 to 31, as a date has them: "third", "dritten"."""


def _cardinal(number: int) -> tuple[str, str]:
    """142 is "one hundred and forty-two"; German has one word, whose final 1 is "eins"."""
    thousands, hundreds, rest = number // 1000, number // 100 % 10, number % 100
    small = _NUMBERS[rest]
    english = [f"{_NUMBERS[thousands]['english']} thousand"] if thousands else []
    english += [f"{_NUMBERS[hundreds]['english']} hundred"] if hundreds else []
    if rest or not english:
        english.append(f"and {small['english']}" if english else small["english"])
    german = f"{_digit(thousands)}tausend".removeprefix("ein") if thousands else ""
    if hundreds:
        german += f"{_digit(hundreds)}hundert" if german or hundreds > 1 else "hundert"
    return " ".join(english), german + (small["german"] if rest or not german else "")


def _digit(number: int) -> str:
    return "ein" if number == 1 else _NUMBERS[number]["german"]


CARDINALS = tuple(map(_cardinal, range(10_000)))  # both words of each number
