"""Draws phrases, predicates and times from the combinations that a split allows."""

import calendar
import random
from collections.abc import Sequence
from typing import TypeVar

from flaxformer_mt.grammar import words as w
from flaxformer_mt.grammar.clauses import NOTHING, BilingualPhrase, Clause
from flaxformer_mt.grammar.splits import Split, Use, choices, options, repeat

T = TypeVar("T")
Pool = tuple[str, ...]  # categories of nouns

_COMPANY = repeat("2 with, 1 without")
_GENERAL_PLACES = ("behind", "next to", "in front of")
_MOMENTS = ("after", "before", "during")


class DeadEnd(Exception):
    """The choices so far leave nothing that this split allows: draw the sentence again."""


def pronoun(word: w.Word, case: str) -> BilingualPhrase:
    english = word.english if case == "nominative" else word.english_object
    return BilingualPhrase(english, getattr(word, case), word=word, person=word.person)


def relative_pronoun(head: BilingualPhrase, case: str) -> BilingualPhrase:
    """It agrees with its head, a noun phrase, in gender and number."""
    column = "plural" if head.person == "wir" else head.word.gender
    who = "who" if case == "nominative" else "whom"
    english = who if head.category in w.PEOPLE else "that"
    return BilingualPhrase(english, w.RELATIVE_PRONOUNS[f"{case}.{column}"])


def prepositional(preposition: str, phrase: BilingualPhrase, german: str = "") -> BilingualPhrase:
    """A phrase after an English preposition; "in dem" becomes "im"."""
    article, _, following = phrase.german.partition(" ")
    start = f"{german or w.PREPOSITIONS[preposition].german} {article}"
    if phrase.determiner is w.THE:
        start = w.CONTRACTIONS.get(start, start)
    return BilingualPhrase(preposition, start) + BilingualPhrase(
        phrase.english, following, phrase.shown
    )


def _english_article(article: str, following: str) -> str:
    """ "a" before a vowel is "an"; other determiners stay as they are."""
    if article != "a":
        return article
    vowel = following[0] in "aeiou" and not following.startswith("university")
    return "an" if vowel or following.startswith("honest") else "a"


class PhraseSampler:
    """Draws phrases; its only randomness is `random()`, whose stream Python keeps stable."""

    def __init__(self, rng: random.Random, split: Split) -> None:
        self.random = rng.random
        self.split = split

    def pick(self, among: Sequence[T]) -> T:
        return among[int(self.random() * len(among))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def draw(self, construction: str, *kinds: str) -> Use:
        """One of the `choices`. Raises DeadEnd if there are none."""
        uses = choices(self.split, construction, *kinds)
        if not uses:
            raise DeadEnd
        return self.pick(uses)

    def fixed(self, construction: str, *kinds: str) -> BilingualPhrase:
        """A word that has one form."""
        word, used = self.draw(construction, *kinds)
        return BilingualPhrase(word.english, word.german, used, word)

    def noun_phrase(
        self, name: str, pool: Pool, *, adjective: float = 0.35, case: str = ""
    ) -> BilingualPhrase:
        """One of NOUN_PHRASES, maybe with an adjective.

        Its words agree in gender, number and case; `case` replaces the table's.
        """
        kind = w.NOUN_PHRASES[name]
        number, determiners = self.pick(options(kind, pool[0] in w.MASS))
        determiner = self.pick(determiners) if len(determiners) > 1 else determiners[0]
        noun, used = self.draw(f"{kind.role}.{number}.{determiner.kind}", *pool)
        place = f"{case or kind.case}.{noun.column(number)}"
        declension = f"{determiner.paradigm}.{place}"
        described = BilingualPhrase(noun.in_english(number), noun.forms[place], used)

        count = self._count(kind.role) if determiner is w.COUNTED else NOTHING
        adjectives = self.chance(adjective) and choices(self.split, declension, noun.category)
        if adjectives:
            word, used = self.pick(adjectives)
            german = word.stem + w.ENDINGS[declension]
            described = BilingualPhrase(word.english, german, used) + described

        start = BilingualPhrase(
            _english_article(determiner.in_english(number), described.english),
            determiner.forms.get(place, ""),
            word=noun,
            determiner=determiner,
            person="wir" if number == "plural" else "er",
        )
        return start + count + described

    def _count(self, role: str) -> BilingualPhrase:
        """Mostly below 100; sometimes a round number, rarely any other up to 9999."""
        draw = self.random()
        if draw < 0.9:
            return self.fixed(f"count.{role}")
        if draw < 0.98:
            return self.round_number()
        return self.number(102, 9999)

    def number(self, low: int, high: int) -> BilingualPhrase:
        number = low + int(self.random() * (high + 1 - low))
        # "one" is not declined here: "hundertein Autos" and "hunderteins Autos" are both disputed.
        return BilingualPhrase(*w.cardinal(number if number % 100 != 1 else number + 1))

    def round_number(self) -> BilingualPhrase:
        digit = 1 + int(self.random() * 9)
        return BilingualPhrase(*w.cardinal(digit * (100 if self.chance(0.6) else 1000)))

    def subject(self, pool: Pool = w.PEOPLE) -> BilingualPhrase:
        """A pronoun, a noun phrase, or two of them."""
        draw = self.random()
        if draw < 0.3:
            return pronoun(self.pick(w.PRONOUNS), "nominative")
        if draw >= 0.37:
            return self.noun_phrase("subject", pool)
        first = self.noun_phrase("subject", w.PEOPLE, adjective=0.2)
        second = self.noun_phrase("subject", w.PEOPLE, adjective=0.2)
        if first.word is second.word or w.COUNTED in (first.determiner, second.determiner):
            raise DeadEnd
        return (
            BilingualPhrase("", "", person="wir") + first + BilingualPhrase("and", "und") + second
        )

    def place(self) -> BilingualPhrase:
        """ "in the park", "at the station", "behind the old house"."""
        phrase = self.noun_phrase("place", ("place",), adjective=0.2)
        if self.chance(0.75):
            return prepositional(phrase.word.at_english, phrase, phrase.word.at_german)
        return prepositional(self.pick(_GENERAL_PLACES), phrase)

    def direction(self) -> BilingualPhrase:
        """Where to: "to" and "from" the dative, "into", "onto", "through" the accusative."""
        if self.chance(0.55):
            phrase = self.noun_phrase("goal", ("place",), adjective=0.2)
            return prepositional("to" if self.chance(0.75) else "from", phrase)
        phrase = self.noun_phrase("path", ("place",), adjective=0.2)
        return prepositional(self.pick(repeat(phrase.word.paths)), phrase)

    def company(self, clause: Clause, edible: bool) -> BilingualPhrase:
        """With, without or for whom; an `edible` object with or without another dish or drink."""
        for_nobody = edible or clause.verb.frame == "motion"
        preposition = self.pick(_COMPANY if for_nobody else (*_COMPANY, "for"))
        role = "with" if preposition == "with" else "for"
        pool: Pool
        if edible:
            pool, adjective = ("dish", "drink"), 0.6
        else:
            pool, adjective = w.ANIMATE if role == "with" else w.PEOPLE, 0.3
        phrase = self.noun_phrase(role, pool, adjective=adjective)
        if edible and phrase.word is clause.object.word:
            raise DeadEnd
        return prepositional(preposition, phrase)

    def profession(self, clause: Clause) -> BilingualPhrase:
        """ "a good teacher", in the subject's number and natural gender.

        Of people, only professions are predicates.
        """
        subject = clause.subject
        plural = subject.person == "wir"
        name = f"{'negated-' * clause.negated}{'plural-' * plural}predicate"
        # A relative pronoun has no gender in the plural, a noun has.
        gender = "" if plural and not subject.determiner.kind else subject.word.gender
        profession = "profession_f" if gender == "feminine" else "profession_m"
        return self.noun_phrase(name, (profession,), adjective=1.0)

    def quality(self, clause: Clause, category: str) -> BilingualPhrase:
        """ "old", "old and tired", of people also "as old as the king"."""
        draw = self.random()
        compared = draw < 0.2 and category == "person"
        pattern = "comparison" if compared else "predicate"
        construction = f"{pattern}.{clause.position}"
        adjective = self.fixed(construction, category)
        if compared:
            standard = self.noun_phrase("standard", w.PEOPLE)
            return BilingualPhrase("as", "so") + adjective + BilingualPhrase("as", "wie") + standard
        second = self.fixed(construction, category)
        if draw > 0.8 and second.word.scale != adjective.word.scale:
            return adjective + BilingualPhrase("and", "und") + second
        return adjective

    def when(self, clause: Clause, position: str) -> BilingualPhrase:
        """An adverb, day, month, date, hour or event that fits the clause's tense."""
        tense = "past" if clause.modal.past else clause.tense
        draw = self.random()
        if tense == "perfect" or draw < 0.45:
            pattern = "time" if tense == "perfect" or draw < 0.3 else "day"
            return self.fixed(f"{pattern}.{position}", tense)
        if draw < 0.53:
            return BilingualPhrase("in", "im") + self.fixed(f"month.{position}", tense)
        if draw < 0.73:
            return self._date(position, tense)
        if draw < 0.81:
            hour = self.fixed(f"clock.{position}", tense)
            hour.german = hour.german.replace("eins", "ein")  # "um ein Uhr"
            return BilingualPhrase("at", "um") + hour + BilingualPhrase("o'clock", "Uhr")
        if draw < 0.88:
            return self._half_hour(position, tense)
        preposition = self.pick(_MOMENTS)
        case = "genitive" if preposition == "during" else "dative"
        event = self.noun_phrase("event", ("event",), adjective=0, case=case)
        return prepositional(preposition, event)

    def _date(self, position: str, tense: str) -> BilingualPhrase:
        """ "on the third of May", "am dritten Mai"; February 30 is a dead end."""
        day = self.fixed(f"ordinal.{position}", tense)
        month = self.fixed(f"date.{position}", tense)
        number = w.ADVERBS["month"].index(month.word) + 1
        _, longest = calendar.monthrange(2024, number)  # of a leap year
        if w.ORDINALS.index(day.word) >= longest:
            raise DeadEnd
        return BilingualPhrase("on the", "am") + day + BilingualPhrase("of", "") + month

    def _half_hour(self, position: str, tense: str) -> BilingualPhrase:
        """German names the hour that follows: "at half past three", "um halb vier"."""
        hour = self.fixed(f"half.{position}", tense)
        number = w.HOURS.index(hour.word) + 1
        hour.german = w.HOURS[number % 12].german
        return BilingualPhrase("at half past", "um halb") + hour
