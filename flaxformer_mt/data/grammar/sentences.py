"""Drawing sentences from what a split allows: clauses of every kind, and how they are joined.

Two rules make the source determine its translation. No adjunct could belong to either of two
clauses: nothing follows an object's relative clause, and a clause with a complement has its
adjuncts in front. A phrase has a possessor or a relative clause, not both.
"""

import contextlib

from flaxformer_mt.data.grammar import words as w
from flaxformer_mt.data.grammar.clauses import NOTHING, Clause, Phrase
from flaxformer_mt.data.grammar.phrases import (
    DeadEnd,
    Phrases,
    Pool,
    prepositional,
    pronoun,
    relative_pronoun,
)
from flaxformer_mt.data.grammar.splits import repeat, tenses

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


def _punctuated(text: str, mark: str) -> str:
    """Commas joined to words, doubled or final ones merged, a capital in front."""
    text = text.replace(" , ,", " ,").removesuffix(" ,").replace(" ,", ",")
    return text[0].upper() + text[1:] + mark


class Sentences(Phrases):
    """Draws whole sentences."""

    def sentence(self) -> Phrase:
        """One sentence, cased and punctuated; dead ends are drawn again."""
        while True:
            with contextlib.suppress(DeadEnd):
                text, mark = self._sentence()
                text.english = _punctuated(text.english, mark)
                text.german = _punctuated(text.german, mark)
                return text

    def _sentence(self) -> tuple[Phrase, str]:
        """A main clause and at most one other, and the mark at their end."""
        draw = self.random()
        if draw < 0.2:
            return self.clause("main", relatives=1.3).phrase(), "."
        if draw < 0.4:
            return self._fronted().phrase(), "."
        if draw < 0.54:
            return self._question().phrase(), "?"
        if draw < 0.67:
            kind = self.pick(_BEFORE_KINDS)
            first, second = self._clauses(kind, "fronted", span=self._span(kind))
            return first + Phrase(",", ",") + second, "."
        if draw < 0.8:
            kind = self.pick(_AFTER_KINDS)
            first, second = self._clauses("main", kind, span=self._span(kind))
            return first + Phrase("", ",") + second, "."
        if draw < 0.91:
            return self._reported()
        span = self._span("main")
        first, second = self._clauses("main", "main", span=span, relatives=0, adjuncts=0.5)
        joint = Phrase(", and", "und") if self.chance(0.6) else Phrase(", but", ", aber")
        return first + joint + second, "."

    def _clauses(
        self, *kinds: str, span: str, relatives: float = 0.4, adjuncts: float = 0.6
    ) -> list[Phrase]:
        return [
            self.clause(kind, span=span, relatives=relatives, adjuncts=adjuncts).phrase()
            for kind in kinds
        ]

    def _span(self, kind: str) -> str:
        return "past" if kind != "if" and self.random() < 0.45 else "now"

    def _fronted(self) -> Clause:
        clause = self.clause("fronted", relatives=0.8, adjuncts=0.3)
        draw = self.random()
        if draw < 0.35 and not clause.frequency and not clause.predicate:
            clause.front, clause.time = self.when(clause, "front"), NOTHING
        elif draw < 0.55 and self.happens(clause):
            clause.front, clause.place = clause.place or self.place(), NOTHING
        elif draw < 0.8 and clause.object.word.category:
            if clause.object.determiner.kind not in _POINTING:
                raise DeadEnd
            clause.front, clause.object = clause.object, NOTHING
        else:
            clause.front = self.comment()
        return clause

    def comment(self) -> Phrase:
        word = self.pick(w.ADVERBS["comment"])
        return Phrase(word.english, word.german)

    def _question(self) -> Clause:
        clause = self.clause("question", relatives=0.3, adjuncts=0.5)
        frame = clause.verb.frame
        draw = self.random()
        if draw < 0.4:
            return clause
        if draw < 0.6:
            clause.front = self._asked_adverb(clause)
        elif draw < 0.72 and frame not in ("copula", "price"):
            clause.front = clause.subject = pronoun(w.WHO, "nominative")
        elif frame == "dative":
            clause.front, clause.recipient = pronoun(w.WHO, "dative"), NOTHING
        elif clause.object and frame != "placing":
            clause.front, clause.object = self._asked_object(clause.object.word.category), NOTHING
        return clause

    def _asked_adverb(self, clause: Clause) -> Phrase:
        draw = self.random()
        plain = not clause.negated and not clause.frequency
        if draw < 0.4:
            return Phrase("why", "warum")
        if draw < 0.7 and plain and not clause.time:
            return Phrase("when", "wann")
        if plain and self.happens(clause) and not clause.place:
            return Phrase("where", "wo")
        return NOTHING

    def _asked_object(self, category: str) -> Phrase:
        if not category or self.chance(0.4):
            people = not category or category in w.PEOPLE
            return pronoun(w.WHO if people else w.WHAT, "accusative")
        return self.noun_phrase("which-object", (category,))

    def _reported(self) -> tuple[Phrase, str]:
        draw = self.random()
        kind = "main" if draw < 0.7 else "fronted" if draw < 0.85 else "question"
        frame = "that" if self.chance(0.65) else "whether"
        span = self._span(kind)
        tense = self.pick(tenses(kind, span))
        verb, used = self.draw(f"{tense}.{kind}", frame)
        clause = Clause(kind, verb, tense, self.subject(), used)
        self.inflect(clause, span)
        if kind == "fronted":
            clause.front = self.comment() if self.chance(0.5) else self.when(clause, "front")
        span = "past" if span == "past" else "anytime"
        (clause.complement,) = self._clauses(frame, span=span)
        return clause.phrase(), "?" if kind == "question" else "."

    def clause(
        self,
        kind: str,
        *,
        span: str = "anytime",
        subject: Phrase | None = None,
        relatives: float = 0.0,
        adjuncts: float = 1.0,
    ) -> Clause:
        """A clause; `relatives` and `adjuncts` scale chances. `subject`: a person's pronoun."""
        frame = self.pick(_FRAMES)
        tense = self.pick(tenses(kind, span))
        if kind == "before" and frame == "copula":
            raise DeadEnd
        if frame == "copula":
            return self._copula(kind, tense, span=span, subject=subject, adjuncts=adjuncts)
        if frame == "price":
            return self._price(kind, tense, subject)
        verb, used = self.draw(f"{tense}.{kind}", frame)
        if subject is None:
            animal = verb.german in _ANIMAL_VERBS and self.random() < 0.25
            subject = self.subject(w.ANIMATE if animal else w.PEOPLE)
        clause = Clause(kind, verb, tense, subject, used)
        self.inflect(clause, span)
        self._arguments(clause)
        closed = self._modify(clause, relatives)
        self._adjuncts(clause, adjuncts, closed=closed)
        return clause

    def inflect(self, clause: Clause, span: str) -> None:
        """Choose the modal verb and the negation, or a negative subject."""
        if clause.tense == "modal":
            past = span == "past" or (span == "anytime" and self.random() < 0.4)
            tense = "past" if past else "present"
            clause.modal, used = self.draw(f"{tense}.{clause.kind}", "modal")
            clause.shown += used
        draw = self.random()
        if draw < 0.2 and clause.kind != "before":
            clause.negated = True
        elif draw < 0.22 and clause.subject.determiner.kind:
            clause.subject = self.noun_phrase("no-subject", (clause.subject.word.category,))

    def happens(self, clause: Clause) -> bool:
        """Whether the clause is an action with a place."""
        visited = clause.object.word.category == "place"
        return clause.verb.frame in _ADVERBIAL and not (clause.verb.stative or visited)

    def _copula(
        self,
        kind: str,
        tense: str,
        *,
        span: str = "anytime",
        subject: Phrase | None = None,
        adjuncts: float = 0.0,
    ) -> Clause:
        """A clause with "be"; a given `subject` is a relative pronoun."""
        if tense == "progressive" or (tense == "perfect" and span == "now"):
            tense = "present"
        elif tense == "perfect":
            tense = "past" if kind not in ("if", "when", "before") else "present"
        category = "person"
        if subject is not None and subject.word.category not in w.PEOPLE:
            category = subject.word.category
        elif subject is None and self.chance(0.4):
            category = self.pick(_DESCRIBED)
            described = 0.5 if category in w.MASS else 0.15
            subject = self.noun_phrase("subject", (category,), adjective=described)
        subject = subject or self.subject()
        clause = Clause(kind, w.COPULA, tense, subject)
        self.inflect(clause, span)
        if clause.modal is not None and clause.modal.german not in _COPULA_MODALS:
            raise DeadEnd
        draw = self.random()
        if category != "person" or draw > 0.5:
            clause.predicate = self.quality(clause, category)
        elif draw < 0.2:
            age = self.fixed(f"age.{clause.position}")
            clause.predicate = age + Phrase("years old", "Jahre alt")
        elif draw < 0.32:
            clause.place = self.place()
        else:
            clause.predicate = self.profession(clause)
        if clause.place and self.random() < 0.4 * adjuncts:
            clause.time = self.when(clause, clause.position)
        return clause

    def _price(self, kind: str, tense: str, subject: Phrase | None) -> Clause:
        """ "costs three hundred euros": goods cost; a given subject stands for people."""
        if subject is not None or tense in ("past", "modal"):
            raise DeadEnd
        if tense != "future":
            tense = "present"
        verb, used = self.draw(f"{tense}.{kind}", "price")
        goods = self.noun_phrase("subject", (self.pick(_GOODS),))
        clause = Clause(kind, verb, tense, goods, used, negated=self.chance(0.15))
        if self.chance(0.5):
            euros = Phrase(*w.cardinal(2 + int(self.random() * 98)))
        else:
            euros = self.round_number()
        clause.predicate = euros + Phrase("euros", "Euro")
        return clause

    def _arguments(self, clause: Clause) -> None:
        verb = clause.verb
        if verb.frame == "dative":
            clause.recipient = self._someone(clause, "recipient", self.pick(verb.pools))
        elif verb.pools:
            if verb.frame == "ditransitive":
                clause.recipient = self._someone(clause, "recipient", w.PEOPLE)
            pool = self.pick(verb.pools)
            name = "negated-object" if clause.negated else "object"
            if "person" in pool:
                clause.object = self._someone(clause, name, pool)
            else:
                clause.object = self.noun_phrase(name, pool, adjective=0.4)
            if verb.frame == "placing":
                surface = self.noun_phrase("path", ("furniture",), adjective=0.2)
                clause.place = prepositional("on", surface)

    def _someone(self, clause: Clause, name: str, pool: Pool) -> Phrase:
        """A noun phrase, or a pronoun other than the subject (which would be reflexive)."""
        if self.random() < 0.35:
            word = self.pick(w.PRONOUNS)
            if word is not clause.subject.word:
                return pronoun(word, "dative" if name == "recipient" else "accusative")
        return self.noun_phrase(name, pool)

    def _modify(self, clause: Clause, relatives: float) -> bool:
        """Maybe a relative clause or a possessor; True when one on the object ends the clause."""
        draw = self.random()
        target, subject = clause.object, clause.subject
        if draw < 0.2 * relatives:
            pointing = target.determiner.kind in _POINTING or target.determiner.name == "a"
            if pointing and not clause.place:
                clause.object += self._relative(target, clause)
                return True
        elif draw < 0.35 * relatives:
            if subject.determiner.kind and not subject.determiner.negative:
                clause.subject += self._relative(subject, clause)
        elif draw > 0.8 and w.THE in (target.determiner, subject.determiner):
            owner = self.noun_phrase("possessor", w.PEOPLE, adjective=0.2)
            if target.determiner is w.THE:
                clause.object += Phrase("of", "") + owner
            else:
                clause.subject += Phrase("of", "") + owner
        return False

    def _relative(self, head: Phrase, outer: Clause) -> Phrase:
        animate = head.word.category in w.PEOPLE
        draw = self.random()
        tense = self.pick(tenses("relative", "anytime"))
        gap = relative_pronoun(head, "nominative")
        if animate and draw < 0.55:
            clause = self.clause("relative", subject=gap, adjuncts=0.6)
        elif not animate and draw < 0.35:
            clause = self._copula("relative", tense, subject=gap)
        else:
            frame, gap = head.word.category, relative_pronoun(head, "accusative")
            if animate and draw < 0.78:
                gap = relative_pronoun(head, "dative")
                frame = "dative" if draw < 0.7 else "intransitive"
            if frame == "intransitive":
                gap = prepositional("with", gap)
            verb, used = self.draw(f"{tense}.relative", frame)
            clause = Clause("relative", verb, tense, self.subject(), used)
            self.inflect(clause, "anytime")
            self._adjuncts(clause, 0.4, company=False)
        clause.front = gap
        if clause.verb is outer.verb:
            raise DeadEnd
        return Phrase("", ",") + clause.phrase() + Phrase("", ",")

    def _adjuncts(
        self, clause: Clause, scale: float, *, closed: bool = False, company: bool = True
    ) -> None:
        """Frequency or time, direction, manner or company or place."""
        draw = self.random()
        if draw < 0.08 and not clause.negated and clause.tense in ("present", "past", "perfect"):
            clause.frequency = self.fixed(f"frequency.{clause.position}")
        if clause.verb.frame == "motion":
            clause.place = self.direction()
        if closed:
            return
        if 0.08 <= draw < 0.08 + 0.32 * scale:
            clause.time = self.when(clause, clause.position)
        draw = self.random()
        edible = clause.object.word.category in _EDIBLE
        if draw < (0.35 if edible else 0.12) * scale:
            if company and clause.verb.frame in ("motion", *_ADVERBIAL):
                clause.companion = self.company(clause, edible)
        elif draw < 0.24 * scale:
            if self.happens(clause) and not clause.negated:
                clause.manner = self.fixed(f"manner.{clause.position}")
        elif draw < 0.5 * scale:
            if self.happens(clause):
                clause.place = self.place()
