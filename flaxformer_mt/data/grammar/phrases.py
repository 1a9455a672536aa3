"""Drawing phrases, predicates and times from what a split allows."""

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from flaxformer_mt.data.grammar import splits as s, trees as t, words as w
from flaxformer_mt.data.grammar.splits import Allowed, Pool

T = TypeVar("T")
PERSON_OR_ANIMAL: Pool = (*w.PEOPLE, "animal")

_ROLE = {name: s.role_of(name) for name in s.COUNT_OPTIONS}
_COMPANY, _GENERAL_PLACES, _MOMENTS, *_PATHS = (
    tuple(w.PREPOSITIONS[name] for name in names)
    for names in (
        ("with", "with", "without"),
        ("behind", "next to", "in front of"),
        ("after", "before", "during"),
        *(("into", "into", "into", "through"), ("around",), ("onto", "onto", "around")),
    )
)
_PATHS_OF = dict(zip(("in", "an", "auf"), _PATHS, strict=True))
_STATIC = {
    noun: w.Preposition(*noun.static, s.ROLE_CASES["place"])
    for noun in w.NOUNS
    if noun.category == "place"
}
_LONGEST = dict(zip(w.MONTHS, (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))
_DAY = {ordinal: number for number, ordinal in enumerate(w.ORDINALS, start=1)}


class DeadEnd(Exception):
    """The choices so far leave nothing that this split allows: draw the sentence again."""


def date(ordinal: w.Adverb, month: w.Adverb) -> tuple[str, str]:
    """ "on the third of May", "am dritten Mai"; raises DeadEnd for February 30."""
    if _DAY[ordinal] > _LONGEST[month]:
        raise DeadEnd
    return f"on the {ordinal.english} of {month.english}", f"am {ordinal.german} {month.german}"


def clock(hour: int) -> tuple[str, str]:
    """ "at three o'clock", "um drei Uhr"; one is "ein" before "Uhr"."""
    english, german = w.CARDINALS[hour]
    return f"at {english} o'clock", f"um {'ein' if hour == 1 else german} Uhr"


def half_past(hour: int) -> tuple[str, str]:
    """ "at half past three", "um halb vier": German names the hour that follows."""
    return f"at half past {w.CARDINALS[hour][0]}", f"um halb {w.CARDINALS[hour % 12 + 1][1]}"


class Phrases:
    """Draws phrases; its only randomness is `random()`, whose stream Python keeps stable."""

    def __init__(self, rng: random.Random, allowed: Allowed) -> None:
        self.random = rng.random
        self.allowed = allowed

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def find(self, construction: str, key: str | Pool = "") -> list[Any]:
        """What this split allows there; raises DeadEnd if there is nothing."""
        found = self.allowed.get((construction, key))
        if found is None:
            raise DeadEnd
        return found

    def noun_phrase(self, name: str, pool: Pool, *, adjective: float = 0.35) -> t.NounPhrase:
        """A noun phrase in a role or variant of COUNT_OPTIONS, maybe with an adjective."""
        plural, group = self.pick((s.MASS_OPTIONS if pool[0] in w.MASS else s.COUNT_OPTIONS)[name])
        role = _ROLE[name]
        determiner = self.pick(group) if len(group) > 1 else group[0]
        nouns = self.find(s.noun_construction(role, plural, determiner.kind), pool)
        phrase = t.NounPhrase(determiner, self.pick(nouns), plural, role)
        if determiner is w.COUNTED:
            if role not in s.NUMBERED_ROLES:
                raise DeadEnd
            phrase.number = self._count(role)
        if self.random() < adjective:
            form = s.declension(determiner.paradigm, s.ROLE_CASES[role], phrase.column)
            fitting = self.allowed.get((form, phrase.noun.category))
            phrase.adjective = self.pick(fitting) if fitting else None
        return phrase

    def _count(self, role: str) -> int:
        """Mostly below 100; sometimes a round number, rarely any other up to 9999."""
        draw = self.random()
        if draw < 0.9:
            number: int = self.pick(self.find(f"count.{role}"))
            return number
        if draw < 0.98:
            return self.round_number()
        number = 102 + int(self.random() * 9898)
        # "one" is not declined here: "hundertein Autos" and "hunderteins Autos" are both disputed.
        return number if number % 100 != 1 else number + 1

    def round_number(self) -> int:
        return (1 + int(self.random() * 9)) * (100 if self.random() < 0.6 else 1000)

    def subject(self, pool: Pool = w.PEOPLE) -> t.Argument:
        """A pronoun, a noun phrase, or two of them."""
        draw = self.random()
        if draw < 0.3:
            return self.pick(w.PRONOUNS)
        if draw < 0.37:
            first = self.noun_phrase("subject", w.PEOPLE, adjective=0.2)
            second = self.noun_phrase("subject", w.PEOPLE, adjective=0.2)
            if first.noun is second.noun or w.COUNTED in (first.determiner, second.determiner):
                raise DeadEnd
            return t.Coordination(first, second)
        return self.noun_phrase("subject", pool)

    def place(self) -> t.PrepositionalPhrase:
        """ "in the park", "at the station", "behind the old house"."""
        phrase = self.noun_phrase("place", ("place",), adjective=0.2)
        static = self.random() < 0.75
        preposition = _STATIC[phrase.noun] if static else self.pick(_GENERAL_PLACES)
        return t.PrepositionalPhrase(preposition, phrase)

    def direction(self) -> t.PrepositionalPhrase:
        """Where to: "to" and "from" the dative, "into", "onto", "through" the accusative."""
        if self.random() < 0.55:
            phrase = self.noun_phrase("goal", ("place",), adjective=0.2)
            return t.PrepositionalPhrase(w.TO if self.random() < 0.75 else w.FROM, phrase)
        phrase = self.noun_phrase("path", ("place",), adjective=0.2)
        return t.PrepositionalPhrase(self.pick(_PATHS_OF[phrase.noun.static[1]]), phrase)

    def company(self, clause: t.Clause, edible: bool) -> t.PrepositionalPhrase:
        """With, without or for whom; something `edible` with or without what else."""
        nobody = edible or clause.verb.frame == "motion"
        preposition = self.pick(_COMPANY if nobody else (*_COMPANY, w.FOR))
        role = "with" if preposition is w.WITH else "for"
        pool = PERSON_OR_ANIMAL if role == "with" else w.PEOPLE
        if not edible:
            return t.PrepositionalPhrase(preposition, self.noun_phrase(role, pool, adjective=0.3))
        phrase = self.noun_phrase(role, ("dish", "drink"), adjective=0.6)
        if isinstance(clause.object, t.NounPhrase) and clause.object.noun is phrase.noun:
            raise DeadEnd
        return t.PrepositionalPhrase(preposition, phrase)

    def profession(self, clause: t.Clause) -> t.NounPhrase:
        """ "a good teacher", in the subject's number and natural gender."""
        subject = clause.subject
        if isinstance(subject, t.NounPhrase):
            feminine = subject.noun.gender == w.FEMININE
        elif isinstance(subject, t.Relativizer):
            feminine = subject.column == w.FEMININE
        else:
            feminine = subject is w.SHE
        plural = "plural-" if subject.person == w.PLURAL_PERSON else ""
        name = f"{'negated-' if clause.negated else ''}{plural}predicate"
        pool = ("profession_f",) if feminine else ("profession_m",)
        return self.noun_phrase(name, pool, adjective=1.0)

    def quality(self, kind: str, category: str) -> t.Quality | t.Comparison:
        draw = self.random()
        pattern = "comparison" if draw < 0.2 and category == "person" else "predicate"
        fitting = self.find(f"{pattern}.{t.POSITION[kind]}", category)
        adjective = self.pick(fitting)
        if pattern == "comparison":
            return t.Comparison(adjective, self.noun_phrase("standard", w.PEOPLE))
        other = self.pick(fitting)
        if draw > 0.8 and other.scale != adjective.scale:
            return t.Quality((adjective, other))
        return t.Quality((adjective,))

    def when(self, clause: t.Clause, position: str) -> t.Time | t.PrepositionalPhrase:
        """An adverb, day, date, hour or event that fits the clause's tense."""
        tense = t.PAST if clause.modal is not None and clause.modal.past else clause.tense
        draw = self.random()
        if tense == t.PERFECT or draw < 0.45:
            pattern = "time" if tense == t.PERFECT or draw < 0.3 else "day"
            adverb = self._time(pattern, position, tense)
            return t.Time(adverb.english, adverb.german, ((adverb.lemma, pattern),))
        if draw < 0.53:
            month = self._time("month", position, tense)
            english, german = f"in {month.english}", f"im {month.german}"
            return t.Time(english, german, ((month.lemma, "month"),))
        if draw < 0.73:
            ordinal = self._time("ordinal", position, tense)
            month = self._time("date", position, tense)
            parts = ((ordinal.lemma, "ordinal"), (month.lemma, "date"))
            return t.Time(*date(ordinal, month), parts)
        if draw < 0.88:
            pattern, spell = ("clock", clock) if draw < 0.81 else ("half", half_past)
            hour = self._time(pattern, position, tense)
            return t.Time(*spell(hour), ((s.number_lemma(hour), pattern),))
        preposition = self.pick(_MOMENTS)
        return t.PrepositionalPhrase(
            preposition, self.noun_phrase("event", ("event",), adjective=0)
        )

    def _time(self, pattern: str, position: str, tense: str) -> Any:
        return self.pick(self.find(f"{pattern}.{position}", tense))
