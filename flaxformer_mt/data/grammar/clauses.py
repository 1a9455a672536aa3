"""Sampling of clauses from what a split allows.

Two rules keep the source unambiguous, so that it determines its translation. Nothing follows an
object's relative clause in its clause, and a clause with a complement has its adjuncts in front:
an adjunct could otherwise belong to either clause. A phrase has a possessor or a relative clause,
not both.
"""

from __future__ import annotations

from flaxformer_mt.data.grammar import determiners as d, syntax as s
from flaxformer_mt.data.grammar.phrases import (
    MASS_CATEGORIES,
    PERSON,
    PERSON_OR_ANIMAL,
    DeadEnd,
    Pool,
)
from flaxformer_mt.data.grammar.predicates import ANYTIME, TENSES, Predicates, repeat
from flaxformer_mt.data.grammar.syntax import Argument, Clause, NounPhrase, Relativizer

_FRAMES = repeat(
    transitive=42,
    intransitive=16,
    motion=11,
    dative=8,
    ditransitive=10,
    placing=2,
    copula=20,
    price=3,
)
_ANIMAL_VERBS = frozenset(
    (
        *("schlafen", "schwimmen", "warten", "spielen", "zurückkommen", "einschlafen", "laufen"),
        *("sehen", "hören", "lieben", "folgen", "finden", "vertrauen"),
    )
)
_ADVERBIAL = ("intransitive", "transitive")
_EDIBLE = MASS_CATEGORIES | {"food"}
_TABLE: Pool = ("dish", "drink")
_POINTING = ("the", "this", "possessive")


class Clauses(Predicates):
    """Draws single clauses of every kind."""

    def clause(
        self,
        kind: str,
        *,
        span: str = ANYTIME,
        subject: Argument | None = None,
        relatives: float = 0.0,
        adjuncts: float = 1.0,
    ) -> Clause:
        """A clause; `relatives` and `adjuncts` scale the chances of relative clauses and adjuncts.

        A given `subject` is the relative pronoun of a person.
        """
        frame = self.pick(_FRAMES)
        tense = self.pick(TENSES[kind, span])
        if kind == s.BEFORE and frame in ("copula", "price"):
            raise DeadEnd
        if frame == "copula":
            return self.copula(kind, tense, span=span, subject=subject, adjuncts=adjuncts)
        if frame == "price":
            return self.price(kind, tense, subject)
        verb = self.verb(frame, tense, kind)
        if subject is None:
            animal = verb.lemma in _ANIMAL_VERBS and self.random() < 0.25
            subject = self.subject(PERSON_OR_ANIMAL if animal else PERSON)
        clause = Clause(kind, verb, tense, subject)
        self.inflect(clause, span)
        self._arguments(clause)
        closed = self._modify(clause, relatives)
        self._adjuncts(clause, adjuncts, closed=closed)
        return clause

    def _arguments(self, clause: Clause) -> None:
        verb = clause.verb
        if verb.frame == "dative":
            clause.recipient = self._someone(clause, "recipient", self.pick(verb.objects))
        elif verb.frame in ("transitive", "ditransitive", "placing"):
            if verb.frame == "ditransitive":
                clause.recipient = self._someone(clause, "recipient", PERSON)
            pool = self.pick(verb.objects)
            name = "negated-object" if clause.negated else "object"
            if "person" in pool:
                clause.object = self._someone(clause, name, pool)
            else:
                clause.object = self.noun_phrase(name, pool, adjective=0.4)
            if verb.frame == "placing":
                clause.place = self.surface()

    def _someone(self, clause: Clause, name: str, pool: Pool) -> Argument:
        """A pronoun, but not the subject again (that would be reflexive), or a noun phrase."""
        if self.random() < 0.35:
            pronoun = self.pick(d.PRONOUNS)
            if pronoun is not clause.subject:
                return pronoun
        return self.noun_phrase(name, pool)

    def _modify(self, clause: Clause, relatives: float) -> bool:
        """Maybe a relative clause or a possessor; True when one on the object ends the clause."""
        draw = self.random()
        target, subject = clause.object, clause.subject
        if draw < 0.2 * relatives:
            if (
                isinstance(target, NounPhrase)
                and clause.place is None
                and (target.determiner.kind in _POINTING or target.determiner is d.A)
            ):
                target.relative = self._other(clause, self.relative(target))
                return True
        elif draw < 0.35 * relatives:
            if isinstance(subject, NounPhrase) and not subject.determiner.negative:
                subject.relative = self._other(clause, self.relative(subject))
        elif draw > 0.8:
            for phrase in (target, subject):
                if isinstance(phrase, NounPhrase) and phrase.determiner is d.THE:
                    phrase.possessor = self.noun_phrase("possessor", PERSON, adjective=0.2)
                    break
        return False

    def _other(self, clause: Clause, relative: Clause) -> Clause:
        """A relative clause with another verb than the clause that it stands in."""
        if relative.verb is clause.verb:
            raise DeadEnd
        return relative

    def relative(self, head: NounPhrase) -> Clause:
        """A relative clause: its head is subject, object, dative object or company in it."""
        category = head.noun.category
        gap = Relativizer(category in PERSON, head.column)
        draw = self.random()
        tense = self.pick(TENSES[s.RELATIVE, ANYTIME])
        if gap.animate and draw < 0.55:
            return self.clause(s.RELATIVE, subject=gap, adjuncts=0.6)
        if not gap.animate and draw < 0.35:
            return self.copula(s.RELATIVE, tense, subject=gap, category=category)
        if gap.animate and draw < 0.7:
            verb = self.verb("dative", tense, s.RELATIVE)
            clause = Clause(s.RELATIVE, verb, tense, self.subject(), recipient=gap)
        elif gap.animate and draw < 0.78:
            verb = self.verb("intransitive", tense, s.RELATIVE)
            company = s.PrepositionalPhrase(d.WITH, gap)
            clause = Clause(s.RELATIVE, verb, tense, self.subject(), companion=company)
        else:
            verbs = self.inventory.governors.get((tense, category))
            if verbs is None:
                raise DeadEnd
            clause = Clause(s.RELATIVE, self.pick(verbs), tense, self.subject(), object=gap)
        self.inflect(clause, ANYTIME)
        self._adjuncts(clause, 0.4, company=False)
        return clause

    def _adjuncts(
        self, clause: Clause, scale: float, *, closed: bool = False, company: bool = True
    ) -> None:
        """Frequency or time, direction, manner or company or place."""
        draw = self.random()
        if draw < 0.08 and not clause.negated and clause.tense in (s.PRESENT, s.PAST, s.PERFECT):
            clause.frequency = self._adverb("frequency", clause.kind)
        if clause.verb.frame == "motion":
            clause.place = self.direction()
        if closed:
            return
        if 0.08 <= draw < 0.08 + 0.32 * scale:
            clause.time = self.when(clause, s.POSITION[clause.kind])
        draw = self.random()
        edible = self._edible(clause.object)
        if draw < (0.35 if edible else 0.12) * scale:
            if company and clause.verb.frame in ("motion", *_ADVERBIAL):
                clause.companion = self._company(clause, edible)
        elif draw < 0.24 * scale:
            if self.happens(clause):
                if not clause.negated:
                    clause.manner = self._adverb("manner", clause.kind)
        elif draw < 0.5 * scale:
            if self.happens(clause):
                clause.place = self.place()

    def happens(self, clause: Clause) -> bool:
        """Whether the clause is an action that has a place of its own."""
        target = clause.object
        visited = isinstance(target, NounPhrase) and target.noun.category == "place"
        return clause.verb.frame in _ADVERBIAL and not (clause.verb.stative or visited)

    def _adverb(self, pattern: str, kind: str) -> s.Adverb:
        adverbs = self.inventory.adverbs.get((pattern, s.POSITION[kind]))
        if adverbs is None:
            raise DeadEnd
        return self.pick(adverbs)

    def _edible(self, target: Argument | None) -> bool:
        return isinstance(target, NounPhrase) and target.noun.category in _EDIBLE

    def _company(self, clause: Clause, edible: bool) -> s.PrepositionalPhrase:
        if edible:
            phrase = self.company(_TABLE, (d.WITH, d.WITH, d.WITHOUT), adjective=0.6)
            if isinstance(clause.object, NounPhrase) and isinstance(phrase.argument, NounPhrase):
                if clause.object.noun is phrase.argument.noun:
                    raise DeadEnd
            return phrase
        if clause.verb.frame == "motion":
            return self.company(PERSON_OR_ANIMAL, (d.WITH, d.WITH, d.WITHOUT))
        return self.company(PERSON_OR_ANIMAL, (d.WITH, d.WITH, d.WITHOUT, d.FOR))
