"""Sampling of whole sentences: statements, fronting, questions, subordination, coordination."""

from __future__ import annotations

from flaxformer_mt.data.grammar import trees as t, words as w
from flaxformer_mt.data.grammar.clauses import ANYTIME, NOW, PAST, TENSES, Clauses, repeat
from flaxformer_mt.data.grammar.phrases import DeadEnd
from flaxformer_mt.data.grammar.trees import Clause, NounPhrase, Sentence

_BEFORE_KINDS = repeat(because=4, although=3, **{"if": 3}, when=4)
_AFTER_KINDS = repeat(because=5, although=3, **{"if": 2}, when=3, before=3)
_MAX_TRIES = 1000


class Sentences(Clauses):
    """Draws whole sentences."""

    def sentence(self) -> Sentence:
        """One sentence. Dead ends are drawn again; RuntimeError if there is no other end."""
        for _ in range(_MAX_TRIES):
            try:
                return self._sentence()
            except DeadEnd:
                continue
        raise RuntimeError(
            f"no sentence in {_MAX_TRIES} tries: the held-out rule leaves too little of the lexicon"
        )

    def _sentence(self) -> Sentence:
        draw = self.random()
        if draw < 0.2:
            return Sentence(self.clause(t.MAIN, relatives=1.3))
        if draw < 0.4:
            return Sentence(self._fronted())
        if draw < 0.54:
            return Sentence(self._question())
        if draw < 0.67:
            kind = self.pick(_BEFORE_KINDS)
            span = self._span(kind)
            before = self.clause(kind, span=span, relatives=0.4, adjuncts=0.6)
            main = self.clause(t.FRONTED, span=span, relatives=0.4, adjuncts=0.6)
            main.front = "clause"
            return Sentence(main, before=before)
        if draw < 0.8:
            kind = self.pick(_AFTER_KINDS)
            span = self._span(kind)
            main = self.clause(t.MAIN, span=span, relatives=0.4, adjuncts=0.6)
            after = self.clause(kind, span=span, relatives=0.4, adjuncts=0.6)
            return Sentence(main, after=after)
        if draw < 0.91:
            return Sentence(self._reported())
        span = self._span(t.MAIN)
        first = self.clause(t.MAIN, span=span, adjuncts=0.5)
        second = self.clause(t.MAIN, span=span, adjuncts=0.5)
        return Sentence(first, second=second, conjunction="and" if self.chance(0.6) else "but")

    def _span(self, kind: str) -> str:
        return PAST if kind != t.IF and self.random() < 0.45 else NOW

    def _fronted(self) -> Clause:
        """A statement with a time, place, object or comment in front."""
        clause = self.clause(t.FRONTED, relatives=0.8, adjuncts=0.3)
        draw = self.random()
        if draw < 0.35 and clause.frequency is None and clause.predicate is None:
            clause.time, clause.front = self.when(clause, "front"), "time"
        elif draw < 0.55 and self.happens(clause):
            clause.place, clause.front = clause.place or self.place(), "place"
        elif draw < 0.8 and isinstance(clause.object, NounPhrase):
            if clause.object.determiner.kind not in ("the", "this", "possessive"):
                raise DeadEnd
            clause.front = "object"
        else:
            clause.comment, clause.front = self.pick(w.COMMENTS), "comment"
        return clause

    def _question(self) -> Clause:
        """A yes-no question, or one for a place, time, reason, subject or object."""
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

    def _ask_for_adverb(self, clause: Clause) -> None:
        draw = self.random()
        action = self.happens(clause)
        plain = not clause.negated and clause.frequency is None
        if draw < 0.4:
            clause.asked = "why"
        elif draw < 0.7 and plain and clause.time is None:
            clause.asked = "when"
        elif plain and action and clause.place is None:
            clause.asked = "where"

    def _ask_for_object(self, clause: Clause) -> None:
        target = clause.object
        clause.front = "object"
        if not isinstance(target, NounPhrase) or self.random() < 0.4:
            people = not isinstance(target, NounPhrase) or target.noun.category in w.PEOPLE
            clause.object = w.WHO if people else w.WHAT
        else:
            clause.object = self.noun_phrase("which-object", (target.noun.category,))

    def _reported(self) -> Clause:
        """A verb of saying or asking with its complement clause."""
        draw = self.random()
        kind = t.MAIN if draw < 0.7 else t.FRONTED if draw < 0.85 else t.QUESTION
        frame = "that" if self.chance(0.65) else "whether"
        span = self._span(kind)
        tense = self.pick(TENSES[kind, span])
        clause = Clause(kind, self.verb(frame, tense, kind), tense, self.subject())
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
