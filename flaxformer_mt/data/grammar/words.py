"""The words of the built-in grammar with their forms, from the tables beside this file.

A "-" in a table is nothing. Each entry is in its table once.
"""

import csv
import importlib.resources
import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import TypeVar

CASES = ("nominative", "accusative", "dative", "genitive")
COLUMNS = ("masculine", "feminine", "neuter", "plural")  # of every German declension
_ENDINGS = {  # of adjectives: a line for each case, an ending for each column
    "weak": ("e e e en", "en e e en", "en en en en", "en en en en"),
    "mixed": ("er e es en", "en e es en", "en en en en", "en en en en"),
    "strong": ("er e es e", "en e es e", "em er em en", "en er en er"),
}
T = TypeVar("T")


class Word:
    """A row of a table: its columns are attributes, `german` is its lemma."""

    category = gender = ""  # of nouns

    def __init__(self, **row: str) -> None:
        vars(self).update(row)

    def __getattr__(self, column: str) -> str:
        raise AttributeError(f"no column {column!r}")

    def in_english(self, number: str) -> str:
        return self.english_plural if number == "plural" else self.english


class Noun(Word):
    """A noun; `forms` are German, and `at_english` and `at_german` say "at" a place."""

    def __init__(self, **row: str) -> None:
        super().__init__(**row)
        self.gender = COLUMNS[("der", "die", "das").index(self.article)]
        plural = self.german_plural
        lines = (
            f"{self.german} {plural}",
            f"{self.oblique} {plural}",
            f"{self.oblique} {self.dative_plural}",
            f"{self.genitive} {plural}",
        )
        self.forms = _declined(lines, (self.gender, "plural"))

    def column(self, number: str) -> str:
        return "plural" if number == "plural" else self.gender


class Adjective(Word):
    """An adjective with `forms` by declension ("weak.dative.neuter"); `german` is predicative.

    It describes nouns of its `categories`. Two adjectives of one `scale` exclude each other:
    nothing is both big and small.
    """

    def __init__(self, **row: str) -> None:
        super().__init__(**row)
        self.categories = self.describes.split()
        self.forms = {
            f"{paradigm}.{place}": self.stem + ending
            for paradigm, lines in _ENDINGS.items()
            for place, ending in _declined(lines).items()
        }


class Determiner(Word):
    """A determiner with German `forms`, none of them if German has no word for it.

    `kind` is its class in constructions, `paradigm` how it inflects adjectives; a `negative` one
    carries the clause's negation ("not a" is "kein"), so that no "nicht" is needed.
    """

    def __init__(self, **row: str) -> None:
        super().__init__(**row)
        self.forms = _declined(row[case] for case in CASES)


class Verb(Word):
    """A verb and what it governs.

    The persons' columns are German without the separable `particle`, which infinitive and
    participle include. A `movable` English particle stands behind a pronoun object (picks him up).
    Each of `pools` has categories of objects. A preterite (sein, haben) replaces the perfect as
    the German past.
    """

    def __init__(self, **row: str) -> None:
        super().__init__(**row)
        self.pools = [tuple(pool.split()) for pool in self.objects.split("/") if pool]


def _declined(lines: Iterable[str], columns: tuple[str, ...] = COLUMNS) -> dict[str, str]:
    """Forms by case and column ("dative.neuter"), from a line for each case."""
    return {
        f"{case}.{column}": form
        for case, line in zip(CASES, lines, strict=True)
        for column, form in zip(columns, line.split(), strict=False)
    }


def _rows(table: str) -> Iterator[dict[str, str]]:
    folder = importlib.resources.files(__package__)
    lines = (folder / f"{table}.tsv").read_text("utf-8").splitlines()
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        yield {column: "" if cell == "-" else cell for column, cell in row.items()}


def _grouped(words: Iterable[T], column: str) -> dict[str, tuple[T, ...]]:
    groups = itertools.groupby(words, key=operator.attrgetter(column))
    return {name: tuple(group) for name, group in groups}


NOUNS = [Noun(**row) for row in _rows("nouns")]
PEOPLE = ("person", "profession_m", "profession_f")
ANIMATE = (*PEOPLE, "animal")
MASS = {noun.category for noun in NOUNS if not noun.english_plural}
ADJECTIVES = [Adjective(**row) for row in _rows("adjectives")]
# By frames, which say what arguments they take. The copula is grammar more than lexicon: all
# splits use it everywhere.
*VERBS, COPULA = (Verb(**row) for row in _rows("verbs"))
# `english` is the auxiliary that "not" follows; if empty, `finite` (they), `third` (she) and `base`
# are full verbs with do-support: wants to, does not want to.
MODALS = [Word(**row) for row in _rows("modals")]
# By kind. A "comment" is a sentence adverb: in front, with inversion in German.
ADVERBS = _grouped((Word(**row) for row in _rows("adverbs")), "kind")

DETERMINERS = _grouped((Determiner(**row) for row in _rows("determiners")), "name")
# A phrase has a role, whose variants ("negated-object") share its case and its nouns. "event" is
# genitive after "during": it has no adjective, whose form would tell.
NOUN_PHRASES = {row["name"]: Word(**row) for row in _rows("noun_phrases")}
THE, COUNTED = DETERMINERS["the"][0], DETERMINERS["counted"][0]
RELATIVE_PRONOUNS = THE.forms | {"dative.plural": "denen"}  # none of them is genitive
*PRONOUNS, WHO, WHAT = (Word(**row) for row in _rows("pronouns"))
NO_WORD = Word(name="", kind="", negative="", past="")
PREPOSITIONS = {row["english"]: row["german"] for row in _rows("prepositions")}
# Of subordinate clauses. "when" is "als" over a simple past, which the source shows.
CONJUNCTIONS = {row["english"]: row["german"] for row in _rows("conjunctions")}

NUMBERS = [Word(**row, tense="any") for row in _rows("numbers")]  # 0 to 99
HOURS = NUMBERS[1:13]
ORDINALS = [  # of 1 to 31, as a date has them: "third", "dritten"
    Word(english=number.english_ordinal, german=number.german_ordinal, tense="any")
    for number in NUMBERS[1:32]
]


def cardinal(number: int) -> tuple[str, str]:
    """English and German: 142 is "one hundred and forty-two"; German has one word."""
    thousands, hundreds, rest = number // 1000, number // 100 % 10, number % 100
    english, german = [], ""
    for digit, english_unit, german_unit in (
        (thousands, "thousand", "tausend"),
        (hundreds, "hundred", "hundert"),
    ):
        if digit:
            english.append(f"{NUMBERS[digit].english} {english_unit}")
            german += ("ein" if digit == 1 else NUMBERS[digit].german) + german_unit
    german = german.removeprefix("ein")
    if rest:
        english += ["and"] if english else []
        english.append(NUMBERS[rest].english)
        german += NUMBERS[rest].german
    return " ".join(english), german
