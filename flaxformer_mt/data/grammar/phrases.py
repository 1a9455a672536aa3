"""Drawing phrases, predicates and times from what a split allows."""

import calendar
import random
from collections.abc import Sequence
from typing import TypeVar

from flaxformer_mt.data.grammar import words as w
from flaxformer_mt.data.grammar.clauses import Clause, Phrase
from flaxformer_mt.data.grammar.splits import ROLES, Split, Use, choices, options, role_of

T = TypeVar("T")
PERSON_OR_ANIMAL = (*w.PEOPLE, "animal")

LEAP_YEAR = 2024
_COMPANY = ("with", "with", "without")
_GENERAL_PLACES = ("behind", "next to", "in front of")
_MOMENTS = ("after", "before", "during")
_PATHS = {  # by how a place says "in"
    "in": ("into", "into", "into", "through"),
    "an": ("around",),
    "auf": ("onto", "onto", "around"),
}
# Preposition and article that German writes as one word.
_CONTRACTIONS = {
    "in dem": "im",
    "an dem": "am",
    "von dem": "vom",
    "zu dem": "zum",
    "zu der": "zur",
    "in das": "ins",
    "an das": "ans",
}


class DeadEnd(Exception):
    """The choices so far leave nothing that this split allows: draw the sentence again."""


def pronoun(word: w.Word, case: str) -> Phrase:
    return Phrase(
        word.english if case == "nominative" else word.english_object,
        getattr(word, case),
        person=word.person,
        pronoun=word,
        feminine=word.english == "she",
    )


def relative_pronoun(head: Phrase, case: str) -> Phrase:
    """It agrees with its head, a noun phrase, in gender and number."""
    assert head.noun is not None
    number = "plural" if head.person == "wir" else "singular"
    english = "who" if case == "nominative" else "whom"
    return Phrase(
        english if head.category in w.PEOPLE else "that",
        w.RELATIVE_PRONOUNS[case][head.noun.column(number)],
        person=head.person,
        feminine=head.feminine and number == "singular",
    )


def prepositional(preposition: str, phrase: Phrase, german: str = "") -> Phrase:
    """A phrase after an English preposition; "in dem" becomes "im"."""
    article, space, rest = phrase.german.partition(" ")
    start = f"{german or w.PREPOSITIONS[preposition]} {article}"
    if phrase.determiner is w.THE:
        start = _CONTRACTIONS.get(start, start)
    return Phrase(f"{preposition} {phrase.english}", start + space + rest, phrase.shown)


class Phrases:
    """Draws phrases; its only randomness is `random()`, whose stream Python keeps stable."""

    def __init__(self, rng: random.Random, split: Split) -> None:
        self.random = rng.random
        self.split = split

    def pick(self, among: Sequence[T]) -> T:
        return among[int(self.random() * len(among))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def draw(self, construction: str, *kinds: str) -> Use:
        """What `choices` has there; raises DeadEnd if there is nothing."""
        found = choices(self.split, construction, *kinds)
        if not found:
            raise DeadEnd
        return self.pick(found)

    def fixed(self, construction: str, *kinds: str) -> Phrase:
        """A word that has one form."""
        word, used = self.draw(construction, *kinds)
        return Phrase(word.english, word.german, used)

    def noun_phrase(
        self, name: str, pool: tuple[str, ...], *, adjective: float = 0.35, case: str = ""
    ) -> Phrase:
        """A noun of a pool of categories in a role or a variant of one, maybe with an adjective.

        All words agree in gender, number and case, which is the role's unless given.
        """
        number, group = self.pick(options(name, pool[0] in w.MASS))
        role = role_of(name)
        case = case or ROLES[role][0]
        determiner = self.pick(group) if len(group) > 1 else group[0]
        noun, used = self.draw(f"{role}.{number}.{determiner.kind}", *pool)
        words = [Phrase(noun.words[number], noun.forms[number][case], used)]
        paradigm, column = determiner.paradigm, noun.column(number)
        if determiner.name == "counted":
            words.insert(0, self._count(role))
        if self.chance(adjective):
            fitting = choices(self.split, f"{paradigm}.{case}.{column}", noun.category)
            if fitting:
                quality, used = self.pick(fitting)
                german = quality.forms[paradigm][case][column]
                words.insert(-1, Phrase(quality.english, german, used))
        english, following = determiner.words[number], words[0].english
        vowel_sound = following[0] in "aeiou" and following != "university"
        if english == "a" and (vowel_sound or following == "honest"):
            english = "an"
        words.insert(0, Phrase(english, determiner.forms[case][column]))
        return Phrase(
            " ".join(word.english for word in words).lstrip(),
            " ".join(word.german for word in words).lstrip(),
            frozenset().union(*(word.shown for word in words)),
            person="wir" if number == "plural" else "er",
            noun=noun,
            determiner=determiner,
            feminine=noun.gender == "feminine",
        )

    def _count(self, role: str) -> Phrase:
        """Mostly below 100; sometimes a round number, rarely any other up to 9999."""
        draw = self.random()
        if draw < 0.9:
            return self.fixed(f"count.{role}")
        if draw < 0.98:
            return Phrase(*w.cardinal(self.round_number()))
        number = 102 + int(self.random() * 9898)
        # "one" is not declined here: "hundertein Autos" and "hunderteins Autos" are both disputed.
        return Phrase(*w.cardinal(number if number % 100 != 1 else number + 1))

    def round_number(self) -> int:
        return (1 + int(self.random() * 9)) * (100 if self.random() < 0.6 else 1000)

    def subject(self, pool: tuple[str, ...] = w.PEOPLE) -> Phrase:
        """A pronoun, a noun phrase, or two of them."""
        draw = self.random()
        if draw < 0.3:
            return pronoun(self.pick(w.PRONOUNS), "nominative")
        if draw >= 0.37:
            return self.noun_phrase("subject", pool)
        first = self.noun_phrase("subject", w.PEOPLE, adjective=0.2)
        second = self.noun_phrase("subject", w.PEOPLE, adjective=0.2)
        counted = "counted" in (first.determiner.name, second.determiner.name)
        if first.noun is second.noun or counted:
            raise DeadEnd
        both = Phrase(first.english, first.german, first.shown, person="wir")
        both.add(second, " and ", " und ")
        return both

    def place(self) -> Phrase:
        """ "in the park", "at the station", "behind the old house"."""
        phrase = self.noun_phrase("place", ("place",), adjective=0.2)
        assert phrase.noun is not None
        if self.random() < 0.75:
            return prepositional(phrase.noun.at_english, phrase, phrase.noun.at_german)
        return prepositional(self.pick(_GENERAL_PLACES), phrase)

    def direction(self) -> Phrase:
        """Where to: "to" and "from" the dative, "into", "onto", "through" the accusative."""
        if self.random() < 0.55:
            phrase = self.noun_phrase("goal", ("place",), adjective=0.2)
            return prepositional("to" if self.random() < 0.75 else "from", phrase)
        phrase = self.noun_phrase("path", ("place",), adjective=0.2)
        assert phrase.noun is not None
        return prepositional(self.pick(_PATHS[phrase.noun.at_german]), phrase)

    def company(self, clause: Clause, edible: bool) -> Phrase:
        """With, without or for whom; something `edible` with or without what else."""
        nobody = edible or clause.verb.frame == "motion"
        preposition = self.pick(_COMPANY if nobody else (*_COMPANY, "for"))
        role = "with" if preposition == "with" else "for"
        if not edible:
            pool = PERSON_OR_ANIMAL if role == "with" else w.PEOPLE
            return prepositional(preposition, self.noun_phrase(role, pool, adjective=0.3))
        phrase = self.noun_phrase(role, ("dish", "drink"), adjective=0.6)
        if clause.object.noun is phrase.noun:
            raise DeadEnd
        return prepositional(preposition, phrase)

    def profession(self, clause: Clause) -> Phrase:
        """ "a good teacher", in the subject's number and natural gender."""
        plural = "plural-" if clause.subject.person == "wir" else ""
        name = f"{'negated-' if clause.negated else ''}{plural}predicate"
        pool = ("profession_f",) if clause.subject.feminine else ("profession_m",)
        return self.noun_phrase(name, pool, adjective=1.0)

    def quality(self, clause: Clause, category: str) -> Phrase:
        """ "old", "old and tired", of people also "as old as the king"."""
        draw = self.random()
        compared = draw < 0.2 and category == "person"
        construction = f"{'comparison' if compared else 'predicate'}.{clause.position}"
        adjective, used = self.draw(construction, category)
        if compared:
            phrase = Phrase(f"as {adjective.english}", f"so {adjective.german}", used)
            phrase.add(self.noun_phrase("standard", w.PEOPLE), " as ", " wie ")
            return phrase
        phrase = Phrase(adjective.english, adjective.german, used)
        other, used = self.draw(construction, category)
        if draw > 0.8 and other.scale != adjective.scale:
            phrase.add(Phrase(other.english, other.german, used), " and ", " und ")
        return phrase

    def when(self, clause: Clause, position: str) -> Phrase:
        """An adverb, day, date, hour or event that fits the clause's tense."""
        tense = "past" if clause.modal is not None and clause.modal.past else clause.tense
        draw = self.random()
        if tense == "perfect" or draw < 0.45:
            pattern = "time" if tense == "perfect" or draw < 0.3 else "day"
            return self.fixed(f"{pattern}.{position}", tense)
        if draw < 0.53:
            month = self.fixed(f"month.{position}", tense)
            return Phrase(f"in {month.english}", f"im {month.german}", month.shown)
        if draw < 0.73:
            return self._date(position, tense)
        if draw < 0.81:
            hour = self.fixed(f"clock.{position}", tense)
            german = hour.german.replace("eins", "ein")
            return Phrase(f"at {hour.english} o'clock", f"um {german} Uhr", hour.shown)
        if draw < 0.88:
            hour, used = self.draw(f"half.{position}", tense)
            # German names the hour that follows.
            following = w.HOURS[(w.HOURS.index(hour) + 1) % 12]
            return Phrase(f"at half past {hour.english}", f"um halb {following.german}", used)
        preposition = self.pick(_MOMENTS)
        case = "genitive" if preposition == "during" else "dative"
        event = self.noun_phrase("event", ("event",), adjective=0, case=case)
        return prepositional(preposition, event)

    def _date(self, position: str, tense: str) -> Phrase:
        """ "on the third of May", "am dritten Mai"; raises DeadEnd for February 30."""
        day, of_day = self.draw(f"ordinal.{position}", tense)
        month, of_month = self.draw(f"date.{position}", tense)
        _, longest = calendar.monthrange(LEAP_YEAR, w.ADVERBS["month"].index(month) + 1)
        if w.ORDINALS.index(day) >= longest:
            raise DeadEnd
        english = f"on the {day.english} of {month.english}"
        return Phrase(english, f"am {day.german} {month.german}", of_day | of_month)
