"""The words of the built-in grammar with their forms, from the tables beside this file.

A "-" in a table is nothing. Each entry is in its table once.
"""

import csv
import functools
import importlib.resources
import itertools
import operator

CASES = ("nominative", "accusative", "dative", "genitive")
COLUMNS = ("masculine", "feminine", "neuter", "plural")  # of every German declension


class Word:
    """A row of a table: its columns are attributes, `german` is its lemma."""

    category = gender = tenses = ""  # of nouns, and of times

    def __init__(self, **row: str) -> None:
        vars(self).update(row)

    def __getattr__(self, column: str) -> str:
        raise AttributeError(f"no column {column!r}")

    def in_english(self, number: str) -> str:
        return self.english_plural if number == "plural" else self.english

    def column(self, number: str) -> str:
        return "plural" if number == "plural" else self.gender

    @functools.cached_property
    def forms(self) -> dict[str, str]:
        """A noun's or determiner's in German, by case and column ("dative.neuter")."""
        columns = (self.gender, "plural") if self.gender else COLUMNS
        return {
            f"{case}.{column}": form
            for case in CASES
            for column, form in zip(columns, getattr(self, case).split(), strict=False)
        }

    @functools.cached_property
    def pools(self) -> list[tuple[str, ...]]:
        """Categories of nouns, from each of which a verb may have its objects."""
        return [tuple(pool.split()) for pool in self.objects.split("/") if pool]


def _words(table: str) -> list[Word]:
    folder = importlib.resources.files(__package__)
    lines = (folder / f"{table}.tsv").read_text("utf-8").splitlines()
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [Word(**{key: "" if cell == "-" else cell for key, cell in row.items()}) for row in rows]


def _grouped(words: list[Word], column: str) -> dict[str, tuple[Word, ...]]:
    groups = itertools.groupby(words, key=operator.attrgetter(column))
    return {name: tuple(group) for name, group in groups}


# `at_english` and `at_german` say "at" a place, `paths` are prepositions of ways there.
NOUNS = _words("nouns")
PEOPLE = ("person", "profession_m", "profession_f")
ANIMATE = (*PEOPLE, "animal")
MASS = {noun.category for noun in NOUNS if not noun.english_plural}
# `german` is predicative; `describes` has categories of nouns. Two adjectives of one `scale`
# exclude each other: nothing is both big and small.
ADJECTIVES = _words("adjectives")
# By frames, which say what arguments they take. The persons' columns are German without the
# separable `particle`, which infinitive and participle include. A `movable` English particle stands
# behind a pronoun object (picks him up). A preterite (sein, haben) replaces the perfect as the
# German past. The copula is grammar more than lexicon: all splits use it everywhere.
*VERBS, COPULA = _words("verbs")
# `english` is the auxiliary that "not" follows; if empty, `finite` (they), `third` (she) and `base`
# are full verbs with do-support: wants to, does not want to.
*MODALS, WILL = _words("modals")
# By kind. A "comment" is a sentence adverb: in front, with inversion in German. Times say which
# tenses of clauses they fit.
ADVERBS = _grouped(_words("adverbs"), "kind")

# `kind` is a determiner's class in constructions, `paradigm` how it inflects adjectives; a
# `negative` one carries the clause's negation ("not a" is "kein"), so that no "nicht" is needed.
# German may have no word for it. The last three are the endings of adjectives.
DETERMINERS = _grouped(_words("determiners"), "name")
ENDINGS = {  # by declension: "weak.dative.neuter"
    f"{paradigm}.{place}": ending
    for paradigm in ("weak", "mixed", "strong")
    for place, ending in DETERMINERS[paradigm][0].forms.items()
}
# A phrase has a role, whose variants ("negated-object") share its case and its nouns. "event" is
# genitive after "during": it has no adjective, whose form would tell.
NOUN_PHRASES = {phrase.name: phrase for phrase in _words("noun_phrases")}
THE, COUNTED = DETERMINERS["the"][0], DETERMINERS["counted"][0]
RELATIVE_PRONOUNS = THE.forms | {"dative.plural": "denen"}  # none of them is genitive
*PRONOUNS, WHO, WHAT = _words("pronouns")
NO_WORD = Word(name="", kind="", negative="", past="")
PREPOSITIONS = {word.english: word for word in _words("prepositions")}
CONTRACTIONS = {  # of preposition and article, which German writes as one word: "in dem" is "im"
    f"{preposition.german} {article}": getattr(preposition, article)
    for preposition in PREPOSITIONS.values()
    for article in ("dem", "der", "das")
    if getattr(preposition, article)
}
# Kinds of clauses, their conjunctions, and their tenses by weight in each span. Kinds without have
# those of a main clause. "when" is "als" over a simple past, which the source shows.
CLAUSES = {clause.kind: clause for clause in _words("clauses")}

NUMBERS = _words("numbers")  # 0 to 99
HOURS = NUMBERS[1:13]
ORDINALS = [  # of 1 to 31, as a date has them: "third", "dritten"
    Word(english=number.english_ordinal, german=number.german_ordinal) for number in NUMBERS[1:32]
]


def cardinal(number: int) -> tuple[str, str]:
    """English and German: 142 is "one hundred and forty-two"; German has one word."""
    thousands, below_thousand = divmod(number, 1000)
    hundreds, below_hundred = divmod(below_thousand, 100)
    english = []
    german = ""
    for digit, english_unit, german_unit in (
        (thousands, "thousand", "tausend"),
        (hundreds, "hundred", "hundert"),
    ):
        if digit:
            english.append(f"{NUMBERS[digit].english} {english_unit}")
            german += ("ein" if digit == 1 else NUMBERS[digit].german) + german_unit
    german = german.removeprefix("ein")

    if below_hundred:
        if english:
            english.append("and")
        english.append(NUMBERS[below_hundred].english)
        german += NUMBERS[below_hundred].german
    return " ".join(english), german
