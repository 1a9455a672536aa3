"""Drawing sentences from what a split allows: clauses of every kind, and how they are joined.

Two rules make the source determine its translation. No adjunct could belong to either of two
clauses: nothing follows an object's relative clause, and a clause with a complement has its
adjuncts in front. A phrase has a possessor or a relative clause, not both.
"""

import contextlib
from typing import Any

from flaxformer_mt.data.grammar import trees as t, words as w
from flaxformer_mt.data.grammar.phrases import PERSON_OR_ANIMAL, DeadEnd, Phrases
from flaxformer_mt.data.grammar.splits import Pool

ANYTIME, PAST, NOW = "anytime", "past", "now"  # spans, in which a sentence's clauses agree


def repeat(**weights: int) -> tuple[str, ...]:
    """Each name as often as its weight says."""
    return tuple(name for name, weight in weights.items() for _ in range(weight))


TENSES: dict[tuple[str, str], tuple[str, ...]] = {}  # weighted tenses by kind of clause and span
for _kind in t.KINDS:
    TENSES[_kind, ANYTIME] = repeat(
        present=26, progressive=12, past=24, perfect=14, future=10, modal=16
    )
    TENSES[_kind, PAST] = repeat(past=5, modal=1)
    TENSES[_kind, NOW] = repeat(present=6, progressive=3, perfect=2, future=2, modal=3)
for _span in (ANYTIME, NOW):
    TENSES[t.IF, _span] = repeat(present=3, perfect=1, modal=1)
    TENSES[t.WHEN, _span] = TENSES[t.BEFORE, _span] = (t.PRESENT,)
TENSES[t.WHEN, PAST] = TENSES[t.BEFORE, PAST] = (t.PAST,)

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
    "schlafen schwimmen warten spielen zurückkommen einschlafen laufen sehen hören lieben folgen "
    "finden vertrauen".split()
)
_COPULA_MODALS = ("können", "müssen", "sollen")
_DESCRIBED = (
    *("place", "animal", "thing", "furniture", "clothing", "vehicle"),
    *("text", "opening", "food", "dish", "drink", "drink"),
)
_GOODS = ("thing", "furniture", "clothing", "vehicle", "text", "food")
_ADVERBIAL = ("intransitive", "transitive")
_EDIBLE = w.MASS | {"food"}
_POINTING = ("the", "this", "possessive")
_BEFORE_KINDS = repeat(because=4, although=3, **{"if": 3}, when=4)
_AFTER_KINDS = repeat(because=5, although=3, **{"if": 2}, when=3, before=3)


def _category(argument: t.Argument | None) -> str:
    return argument.noun.category if isinstance(argument, t.NounPhrase) else ""


class Sentences(Phrases):
    """Draws whole sentences."""

    def sentence(self) -> t.Sentence:
        """One sentence; dead ends are drawn again."""
        while True:
            with contextlib.suppress(DeadEnd):
                return self._sentence()

    def _sentence(self) -> t.Sentence:
        draw = self.random()
        if draw < 0.2:
            return t.Sentence(self.clause(t.MAIN, relatives=1.3))
        if draw < 0.4:
            return t.Sentence(self._fronted())
        if draw < 0.54:
            return t.Sentence(self._question())
        if draw < 0.8:
            kind = self.pick(_BEFORE_KINDS if draw < 0.67 else _AFTER_KINDS)
            order = (kind, t.FRONTED) if draw < 0.67 else (t.MAIN, kind)
            span = self._span(kind)
            first, second = (
                self.clause(one, span=span, relatives=0.4, adjuncts=0.6) for one in order
            )
            if draw < 0.67:
                second.front = "clause"
                return t.Sentence(second, before=first)
            return t.Sentence(first, after=second)
        if draw < 0.91:
            return t.Sentence(self._reported())
        span = self._span(t.MAIN)
        first = self.clause(t.MAIN, span=span, adjuncts=0.5)
        second = self.clause(t.MAIN, span=span, adjuncts=0.5)
        return t.Sentence(first, second=second, conjunction="and" if self.chance(0.6) else "but")

    def _span(self, kind: str) -> str:
        return PAST if kind != t.IF and self.random() < 0.45 else NOW

    def _fronted(self) -> t.Clause:
        clause = self.clause(t.FRONTED, relatives=0.8, adjuncts=0.3)
        draw = self.random()
        if draw < 0.35 and clause.frequency is None and clause.predicate is None:
            clause.time, clause.front = self.when(clause, "front"), "time"
        elif draw < 0.55 and self.happens(clause):
            clause.place, clause.front = clause.place or self.place(), "place"
        elif draw < 0.8 and isinstance(clause.object, t.NounPhrase):
            if clause.object.determiner.kind not in ("the", "this", "possessive"):
                raise DeadEnd
            clause.front = "object"
        else:
            clause.comment, clause.front = self.pick(w.COMMENTS), "comment"
        return clause

    def _question(self) -> t.Clause:
        clause = self.clause(t.QUESTION, relatives=0.3, adjuncts=0.5)
        draw = self.random()
        if draw < 0.4:
            return clause
        if draw < 0.6:
            self._ask_for_adverb(clause)
        elif draw < 0.72 and clause.verb.frame not in ("copula", "price"):
            clause.subject = w.WHO
        elif clause.verb.frame == "dative":
            clause.recipient, clause.front = w.WHO, "recipient"
        elif clause.object is not None and clause.verb.frame != "placing":
            self._ask_for_object(clause)
        return clause

    def _ask_for_adverb(self, clause: t.Clause) -> None:
        draw = self.random()
        action = self.happens(clause)
        plain = not clause.negated and clause.frequency is None
        if draw < 0.4:
            clause.asked = "why"
        elif draw < 0.7 and plain and clause.time is None:
            clause.asked = "when"
        elif plain and action and clause.place is None:
            clause.asked = "where"

    def _ask_for_object(self, clause: t.Clause) -> None:
        target = clause.object
        clause.front = "object"
        if not isinstance(target, t.NounPhrase) or self.random() < 0.4:
            people = not isinstance(target, t.NounPhrase) or target.noun.category in w.PEOPLE
            clause.object = w.WHO if people else w.WHAT
        else:
            clause.object = self.noun_phrase("which-object", (target.noun.category,))

    def _reported(self) -> t.Clause:
        draw = self.random()
        kind = t.MAIN if draw < 0.7 else t.FRONTED if draw < 0.85 else t.QUESTION
        frame = "that" if self.chance(0.65) else "whether"
        span = self._span(kind)
        tense = self.pick(TENSES[kind, span])
        clause = t.Clause(kind, self.verb(frame, tense, kind), tense, self.subject())
        self.inflect(clause, span)
        if kind == t.FRONTED:
            if self.chance(0.5):
                clause.comment, clause.front = self.pick(w.COMMENTS), "comment"
            else:
                clause.time, clause.front = self.when(clause, "front"), "time"
        clause.complement = self.clause(
            t.THAT if frame == "that" else t.WHETHER,
            span=PAST if span == PAST else ANYTIME,
            relatives=0.4,
            adjuncts=0.6,
        )
        return clause

    def clause(
        self,
        kind: str,
        *,
        span: str = ANYTIME,
        subject: t.Argument | None = None,
        relatives: float = 0.0,
        adjuncts: float = 1.0,
    ) -> t.Clause:
        """A clause; `relatives` and `adjuncts` scale chances. `subject`: a person's pronoun."""
        frame = self.pick(_FRAMES)
        tense = self.pick(TENSES[kind, span])
        if kind == t.BEFORE and frame in ("copula", "price"):
            raise DeadEnd
        if frame == "copula":
            return self._copula(kind, tense, span=span, subject=subject, adjuncts=adjuncts)
        if frame == "price":
            return self._price(kind, tense, subject)
        verb = self.verb(frame, tense, kind)
        if subject is None:
            animal = verb.lemma in _ANIMAL_VERBS and self.random() < 0.25
            subject = self.subject(PERSON_OR_ANIMAL if animal else w.PEOPLE)
        clause = t.Clause(kind, verb, tense, subject)
        self.inflect(clause, span)
        self._arguments(clause)
        closed = self._modify(clause, relatives)
        self._adjuncts(clause, adjuncts, closed=closed)
        return clause

    def verb(self, frame: str, tense: str, kind: str) -> w.Verb:
        """A verb of a frame, or one whose object a relative clause stands for."""
        verb: w.Verb = self.pick(self.find(f"{tense}.{kind}", frame))
        return verb

    def inflect(self, clause: t.Clause, span: str) -> None:
        """Choose the modal verb and the negation, or a negative subject."""
        if clause.tense == t.MODAL:
            past = span == PAST or (span == ANYTIME and self.random() < 0.4)
            tense = t.PAST if past else t.PRESENT
            clause.modal = self.pick(self.find(f"{tense}.{clause.kind}", t.MODAL))
        draw = self.random()
        if draw < 0.2 and clause.kind != t.BEFORE:
            clause.negated = True
        elif draw < 0.22 and isinstance(clause.subject, t.NounPhrase):
            clause.subject = self.noun_phrase("no-subject", (_category(clause.subject),))

    def happens(self, clause: t.Clause) -> bool:
        """Whether the clause is an action with a place."""
        visited = _category(clause.object) == "place"
        return clause.verb.frame in _ADVERBIAL and not (clause.verb.stative or visited)

    def _copula(
        self,
        kind: str,
        tense: str,
        *,
        span: str = ANYTIME,
        subject: t.Argument | None = None,
        adjuncts: float = 0.0,
        category: str = "person",
    ) -> t.Clause:
        """A clause with "be"; a given `subject` is a relative pronoun, its head of `category`."""
        if tense == t.PROGRESSIVE or (tense == t.PERFECT and span == NOW):
            tense = t.PRESENT
        elif tense == t.PERFECT:
            tense = t.PAST if kind not in (t.IF, t.WHEN, t.BEFORE) else t.PRESENT
        if subject is None and self.random() < 0.4:
            category = self.pick(_DESCRIBED)
            described = 0.5 if category in w.MASS else 0.15
            subject = self.noun_phrase("subject", (category,), adjective=described)
        elif subject is None:
            subject = self.subject()
        clause = t.Clause(kind, w.COPULA, tense, subject)
        self.inflect(clause, span)
        if clause.modal is not None and clause.modal.lemma not in _COPULA_MODALS:
            raise DeadEnd
        draw = self.random()
        if category != "person" or draw > 0.5:
            clause.predicate = self.quality(kind, category)
        elif draw < 0.2:
            clause.predicate = t.Amount(self.pick(self.find(f"age.{t.POSITION[kind]}")), t.YEARS)
        elif draw < 0.32:
            clause.place = self.place()
        else:
            clause.predicate = self.profession(clause)
        if clause.place is not None and self.random() < 0.4 * adjuncts:
            clause.time = self.when(clause, t.POSITION[kind])
        return clause

    def _price(self, kind: str, tense: str, subject: t.Argument | None) -> t.Clause:
        """ "costs three hundred euros": goods cost; a given subject stands for people."""
        if subject is not None or tense in (t.PAST, t.MODAL):
            raise DeadEnd
        if tense != t.FUTURE:
            tense = t.PRESENT
        verb = self.verb("price", tense, kind)
        goods = self.noun_phrase("subject", (self.pick(_GOODS),))
        clause = t.Clause(kind, verb, tense, goods, negated=self.chance(0.15))
        euros = 2 + int(self.random() * 98) if self.chance(0.5) else self.round_number()
        clause.predicate = t.Amount(euros, t.EUROS)
        return clause

    def _arguments(self, clause: t.Clause) -> None:
        verb = clause.verb
        if verb.frame == "dative":
            clause.recipient = self._someone(clause, "recipient", self.pick(verb.objects))
        elif verb.frame in ("transitive", "ditransitive", "placing"):
            if verb.frame == "ditransitive":
                clause.recipient = self._someone(clause, "recipient", w.PEOPLE)
            pool = self.pick(verb.objects)
            name = "negated-object" if clause.negated else "object"
            if "person" in pool:
                clause.object = self._someone(clause, name, pool)
            else:
                clause.object = self.noun_phrase(name, pool, adjective=0.4)
            if verb.frame == "placing":
                surface = self.noun_phrase("path", ("furniture",), adjective=0.2)
                clause.place = t.PrepositionalPhrase(w.ON, surface)

    def _someone(self, clause: t.Clause, name: str, pool: Pool) -> t.Argument:
        """A noun phrase, or a pronoun other than the subject (which would be reflexive)."""
        if self.random() < 0.35:
            pronoun = self.pick(w.PRONOUNS)
            if pronoun is not clause.subject:
                return pronoun
        return self.noun_phrase(name, pool)

    def _modify(self, clause: t.Clause, relatives: float) -> bool:
        """Maybe a relative clause or a possessor; True when one on the object ends the clause."""
        draw = self.random()
        target, subject = clause.object, clause.subject
        if draw < 0.2 * relatives:
            if (
                isinstance(target, t.NounPhrase)
                and clause.place is None
                and (target.determiner.kind in _POINTING or target.determiner is w.A)
            ):
                target.relative = self._relative(target, clause)
                return True
        elif draw < 0.35 * relatives:
            if isinstance(subject, t.NounPhrase) and not subject.determiner.negative:
                subject.relative = self._relative(subject, clause)
        elif draw > 0.8:
            for phrase in (target, subject):
                if isinstance(phrase, t.NounPhrase) and phrase.determiner is w.THE:
                    phrase.possessor = self.noun_phrase("possessor", w.PEOPLE, adjective=0.2)
                    break
        return False

    def _relative(self, head: t.NounPhrase, outer: t.Clause) -> t.Clause:
        category = head.noun.category
        gap = t.Relativizer(category in w.PEOPLE, head.column)
        draw = self.random()
        tense = self.pick(TENSES[t.RELATIVE, ANYTIME])
        part: dict[str, Any]
        if gap.animate and draw < 0.55:
            clause = self.clause(t.RELATIVE, subject=gap, adjuncts=0.6)
        elif not gap.animate and draw < 0.35:
            clause = self._copula(t.RELATIVE, tense, subject=gap, category=category)
        else:
            if gap.animate and draw < 0.7:
                verb, part = self.verb("dative", tense, t.RELATIVE), {"recipient": gap}
            elif gap.animate and draw < 0.78:
                verb = self.verb("intransitive", tense, t.RELATIVE)
                part = {"companion": t.PrepositionalPhrase(w.WITH, gap)}
            else:
                verb, part = self.verb(category, tense, t.RELATIVE), {"object": gap}
            clause = t.Clause(t.RELATIVE, verb, tense, self.subject(), **part)
            self.inflect(clause, ANYTIME)
            self._adjuncts(clause, 0.4, company=False)
        if clause.verb is outer.verb:
            raise DeadEnd
        return clause

    def _adjuncts(
        self, clause: t.Clause, scale: float, *, closed: bool = False, company: bool = True
    ) -> None:
        """Frequency or time, direction, manner or company or place."""
        position = t.POSITION[clause.kind]
        draw = self.random()
        if draw < 0.08 and not clause.negated and clause.tense in (t.PRESENT, t.PAST, t.PERFECT):
            clause.frequency = self.pick(self.find(f"frequency.{position}"))
        if clause.verb.frame == "motion":
            clause.place = self.direction()
        if closed:
            return
        if 0.08 <= draw < 0.08 + 0.32 * scale:
            clause.time = self.when(clause, position)
        draw = self.random()
        edible = _category(clause.object) in _EDIBLE
        if draw < (0.35 if edible else 0.12) * scale:
            if company and clause.verb.frame in ("motion", *_ADVERBIAL):
                clause.companion = self.company(clause, edible)
        elif draw < 0.24 * scale:
            if self.happens(clause) and not clause.negated:
                clause.manner = self.pick(self.find(f"manner.{position}"))
        elif draw < 0.5 * scale:
            if self.happens(clause):
                clause.place = self.place()
