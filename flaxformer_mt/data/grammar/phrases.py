"""Sampling of noun phrases and adjuncts from what a split allows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from flaxformer_mt.data.grammar import determiners as d, syntax, times
from flaxformer_mt.data.grammar.constructions import (
    COUNT_OPTIONS,
    MASS_OPTIONS,
    NUMBERED_ROLES,
    ROLE_CASES,
    Option,
    number_lemma,
    role_of,
)
from flaxformer_mt.data.grammar.inventory import Inventory
from flaxformer_mt.data.grammar.nouns import NOUNS, PEOPLE
from flaxformer_mt.data.grammar.syntax import Argument, NounPhrase, PrepositionalPhrase, Time
from flaxformer_mt.data.grammar.times import Adverb

T = TypeVar("T")
Pool = tuple[str, ...]

PERSON: Pool = PEOPLE
PERSON_OR_ANIMAL: Pool = (*PEOPLE, "animal")
MASS_CATEGORIES = frozenset(name for name, nouns in NOUNS.items() if nouns[0].mass)


class DeadEnd(Exception):
    """The choices so far leave nothing that this split allows: draw the sentence anew."""


def _spread(options: list[Option]) -> tuple[tuple[bool, tuple[d.Determiner, ...]], ...]:
    return tuple((plural, group) for weight, plural, group in options for _ in range(weight))


_COUNT = {role: _spread(options) for role, options in COUNT_OPTIONS.items()}
_MASS = {role: _spread(options) for role, options in MASS_OPTIONS.items()}
_ROLE = {name: role_of(name) for name in COUNT_OPTIONS}
_GENERAL_PLACES = (d.BEHIND, d.NEXT_TO, d.IN_FRONT_OF)
_STATIC = {
    noun: d.Preposition(noun.static[0], noun.static[1], ROLE_CASES["place"])
    for noun in NOUNS["place"]
    if noun.static is not None
}
_PATHS = {
    "in": (d.INTO, d.INTO, d.INTO, d.THROUGH),
    "an": (d.AROUND,),
    "auf": (d.ONTO, d.ONTO, d.AROUND),
}
_ENTERED = {noun: _PATHS[preposition.german] for noun, preposition in _STATIC.items()}


class Phrases:
    """Draws phrases; its only randomness is `random()`, whose stream Python keeps stable."""

    def __init__(self, rng: random.Random, inventory: Inventory) -> None:
        self.random = rng.random
        self.inventory = inventory

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def noun_phrase(self, name: str, pool: Pool, *, adjective: float = 0.35) -> NounPhrase:
        """A noun phrase in a role or a variant of one, as COUNT_OPTIONS names them."""
        options = (_MASS if pool[0] in MASS_CATEGORIES else _COUNT)[name]
        plural, group = self.pick(options)
        role = _ROLE[name]
        determiner = self.pick(group) if len(group) > 1 else group[0]
        nouns = self.inventory.nouns.get((role, plural, determiner.kind), {}).get(pool)
        if nouns is None:
            raise DeadEnd
        phrase = NounPhrase(determiner, self.pick(nouns), plural, role)
        if determiner is d.COUNTED:
            if role not in NUMBERED_ROLES:
                raise DeadEnd
            phrase.number = self._count(role)
        if self.random() < adjective:
            self.describe(phrase)
        return phrase

    def describe(self, phrase: NounPhrase) -> None:
        """Add an adjective that fits the noun, if this split has one for its form."""
        key = (phrase.determiner.paradigm, ROLE_CASES[phrase.role], phrase.column)
        fitting = self.inventory.adjectives.get(key, {}).get(phrase.noun.category)
        if fitting is not None:
            phrase.adjective = self.pick(fitting)

    def _count(self, role: str) -> int:
        """Mostly below 100; sometimes a round number, rarely any other up to 9999."""
        draw = self.random()
        if draw < 0.9:
            return self.pick(self.inventory.numbers["count", role])
        if draw < 0.98:
            return self.round_number()
        number = 102 + int(self.random() * 9898)
        # "one" is not declined here: "hundertein Autos" and "hunderteins Autos" are both disputed.
        return number if number % 100 != 1 else number + 1

    def round_number(self) -> int:
        return (1 + int(self.random() * 9)) * (100 if self.random() < 0.6 else 1000)

    def subject(self, pool: Pool = PERSON) -> Argument:
        """A pronoun, a noun phrase, or two of them."""
        draw = self.random()
        if draw < 0.3:
            return self.pick(d.PRONOUNS)
        if draw < 0.37:
            first = self.noun_phrase("subject", PERSON, adjective=0.2)
            second = self.noun_phrase("subject", PERSON, adjective=0.2)
            if first.noun is second.noun or d.COUNTED in (first.determiner, second.determiner):
                raise DeadEnd
            return syntax.Coordination(first, second)
        return self.noun_phrase("subject", pool)

    def place(self) -> PrepositionalPhrase:
        """Where: "in the park", "at the station", "behind the old house"."""
        phrase = self.noun_phrase("place", ("place",), adjective=0.2)
        if self.random() < 0.75:
            return PrepositionalPhrase(_STATIC[phrase.noun], phrase)
        return PrepositionalPhrase(self.pick(_GENERAL_PLACES), phrase)

    def direction(self) -> PrepositionalPhrase:
        """Where to: "to" and "from" govern the dative, "into", "onto", "through" the accusative."""
        if self.random() < 0.55:
            phrase = self.noun_phrase("goal", ("place",), adjective=0.2)
            return PrepositionalPhrase(d.TO if self.random() < 0.75 else d.FROM, phrase)
        phrase = self.noun_phrase("path", ("place",), adjective=0.2)
        return PrepositionalPhrase(self.pick(_ENTERED[phrase.noun]), phrase)

    def surface(self) -> PrepositionalPhrase:
        """Onto what something is put: the accusative of direction."""
        return PrepositionalPhrase(d.ON, self.noun_phrase("path", ("furniture",), adjective=0.2))

    def company(
        self, pool: Pool, prepositions: Sequence[d.Preposition], *, adjective: float = 0.3
    ) -> PrepositionalPhrase:
        """With, without or for whom or what."""
        preposition = self.pick(prepositions)
        role = "with" if preposition is d.WITH else "for"
        if role == "for" and pool is PERSON_OR_ANIMAL:
            pool = PERSON
        return PrepositionalPhrase(preposition, self.noun_phrase(role, pool, adjective=adjective))

    def time(self, position: str, tense: str) -> Time | PrepositionalPhrase:
        """When: a fixed phrase, a day, a month, a date, a clock time or an event."""
        draw = self.random()
        if tense == syntax.PERFECT or draw < 0.3:
            adverb = self._time("time", position, tense)
            return Time(adverb.english, adverb.german, ((adverb.lemma, "time"),))
        if draw < 0.45:
            adverb = self._time("day", position, tense)
            return Time(adverb.english, adverb.german, ((adverb.lemma, "day"),))
        if draw < 0.53:
            month = self._time("month", position, tense)
            return Time(*times.month(month), ((month.lemma, "month"),))
        if draw < 0.73:
            ordinal, month = (
                self._time("ordinal", position, tense),
                self._time("date", position, tense),
            )
            if not times.exists(ordinal, month):
                raise DeadEnd
            return Time(
                *times.date(ordinal, month), ((ordinal.lemma, "ordinal"), (month.lemma, "date"))
            )
        if draw < 0.88:
            pattern, spell = ("clock", times.clock) if draw < 0.81 else ("half", times.half_past)
            hour = self.pick(self._times(pattern, position, tense))
            return Time(*spell(hour), ((number_lemma(hour), pattern),))
        return self._event()

    def _times(self, pattern: str, position: str, tense: str) -> tuple[Any, ...]:
        found = self.inventory.times.get((pattern, position, tense))
        if found is None:
            raise DeadEnd
        return found

    def _time(self, pattern: str, position: str, tense: str) -> Adverb:
        return self.pick(self._times(pattern, position, tense))

    def _event(self) -> PrepositionalPhrase:
        preposition = self.pick((d.AFTER, d.BEFORE, d.DURING))
        phrase = self.noun_phrase("event", ("event",), adjective=0.0)
        return PrepositionalPhrase(preposition, phrase)
