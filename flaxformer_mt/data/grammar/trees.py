"""Abstract syntax of the built-in grammar: one tree, which both languages realise.

A tree holds lexical entries and choices (tense, number, determiner), never words or order.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, TypeAlias

from flaxformer_mt.data.grammar import words as w

MAIN, FRONTED, QUESTION, RELATIVE = "main", "fronted", "question", "relative"
BECAUSE, ALTHOUGH, IF, BEFORE, WHEN = "because", "although", "if", "before", "when"
THAT, WHETHER = "that", "whether"
VERB_SECOND = (MAIN, FRONTED, QUESTION)  # in all others the German finite verb stands last
KINDS = (*VERB_SECOND, BECAUSE, ALTHOUGH, IF, BEFORE, WHEN, THAT, WHETHER, RELATIVE)
POSITIONS = (*VERB_SECOND, "final")  # kinds as adverbials and predicates see them
POSITION = {kind: kind if kind in VERB_SECOND else "final" for kind in KINDS}

PRESENT, PROGRESSIVE, PAST = "present", "progressive", "past"
PERFECT, FUTURE, MODAL = "perfect", "future", "modal"
TENSES = (PRESENT, PROGRESSIVE, PAST, PERFECT, FUTURE, MODAL)


@dataclasses.dataclass(slots=True, eq=False)
class NounPhrase:
    """Determiner, number, adjective, noun, possessor, relative clause; `role` fixes its case."""

    determiner: w.Determiner
    noun: w.Noun
    plural: bool
    role: str
    adjective: w.Adjective | None = None
    number: int | None = None
    possessor: NounPhrase | None = None
    relative: Clause | None = None

    @property
    def person(self) -> int:
        return w.PLURAL_PERSON if self.plural else w.THIRD

    @property
    def column(self) -> int:
        """Column of the German declension tables."""
        return w.PLURAL if self.plural else self.noun.gender


class Coordination(NamedTuple):
    """Two noun phrases joined by "and"."""

    first: NounPhrase
    second: NounPhrase
    person: int = w.PLURAL_PERSON


class Relativizer(NamedTuple):
    """The relative pronoun of a clause; it agrees with its head in gender and number."""

    animate: bool
    column: int

    @property
    def person(self) -> int:
        return w.PLURAL_PERSON if self.column == w.PLURAL else w.THIRD


Argument: TypeAlias = NounPhrase | Coordination | w.Pronoun | Relativizer


class PrepositionalPhrase(NamedTuple):
    preposition: w.Preposition
    argument: Argument


class Quality(NamedTuple):
    """Predicate adjectives: "is old", "is old and tired"."""

    adjectives: tuple[w.Adjective, ...]


class Comparison(NamedTuple):
    """ "is as old as the king"."""

    adjective: w.Adjective
    standard: NounPhrase


class Amount(NamedTuple):
    """ "is forty-two years old", "costs three hundred euros"; `unit` in both languages."""

    number: int
    unit: tuple[str, str]


YEARS, EUROS = ("years old", "Jahre alt"), ("euros", "Euro")
Predicate: TypeAlias = NounPhrase | Quality | Comparison | Amount


class Time(NamedTuple):
    """A time in both languages; `parts` are its lemmas with the name of the pattern each is in."""

    english: str
    german: str
    parts: tuple[tuple[str, str], ...]


Adjunct: TypeAlias = w.Adverb | Time | PrepositionalPhrase


@dataclasses.dataclass(slots=True, eq=False)
class Clause:
    """One clause: a verb, its arguments and its adjuncts.

    `front` is the first field of a FRONTED clause ("time", "place", "object", "comment", or
    "clause": a subordinate one outside of this tree) or a QUESTION ("object", "recipient").
    `asked` is the adverb asked for: "where", "when" or "why". `recipient` is the dative argument.
    """

    kind: str
    verb: w.Verb
    tense: str
    subject: Argument
    modal: w.Modal | None = None
    negated: bool = False
    object: Argument | None = None
    recipient: Argument | None = None
    predicate: Predicate | None = None
    time: Time | PrepositionalPhrase | None = None
    frequency: w.Adverb | None = None
    manner: w.Adverb | None = None
    companion: PrepositionalPhrase | None = None
    place: PrepositionalPhrase | None = None
    comment: w.Adverb | None = None
    front: str = ""
    asked: str = ""
    complement: Clause | None = None

    @property
    def inverts(self) -> bool:
        """Whether the subject follows the finite verb (in English, only in a question)."""
        if self.kind == QUESTION:
            return not (isinstance(self.subject, w.Pronoun) and self.subject.interrogative)
        return bool(self.front)

    def in_place(self, field: str) -> Argument | Adjunct | None:
        """An argument or adjunct, unless it stands in front or is the relative pronoun there."""
        part: Argument | Adjunct | None = getattr(self, field)
        if part is None or field == self.front:
            return None
        pronoun = part.argument if isinstance(part, PrepositionalPhrase) else part
        return None if isinstance(pronoun, Relativizer) else part


@dataclasses.dataclass(slots=True, eq=False)
class Sentence:
    """A main clause and at most one other: subordinate, or a second one after "and", "but"."""

    main: Clause
    before: Clause | None = None
    after: Clause | None = None
    second: Clause | None = None
    conjunction: str = ""


def punctuated(tokens: list[str], mark: str) -> str:
    """Tokens to text: commas joined to words, doubled or final ones merged, a capital in front."""
    text = " ".join(tokens)
    if "," in text:
        text = text.replace(" , ,", " ,").removesuffix(" ,").replace(" ,", ",")
    return text[0].upper() + text[1:] + mark
