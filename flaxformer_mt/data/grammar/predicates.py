"""Sampling of tense, modality and negation, and of clauses with "be" and "cost"."""

from __future__ import annotations

from flaxformer_mt.data.grammar import determiners as d, syntax as s
from flaxformer_mt.data.grammar.nouns import FEMININE
from flaxformer_mt.data.grammar.phrases import MASS_CATEGORIES, PERSON, DeadEnd, Phrases, Pool
from flaxformer_mt.data.grammar.syntax import Argument, Clause, NounPhrase, Relativizer
from flaxformer_mt.data.grammar.verbs import COPULA, Verb

ANYTIME, PAST, NOW = "anytime", "past", "now"
"""The span a clause speaks of; the clauses of a sentence agree in it."""


def repeat(**weights: int) -> tuple[str, ...]:
    """Each name as often as its weight says: a uniform draw from it is a weighted one."""
    return tuple(name for name, weight in weights.items() for _ in range(weight))


TENSES: dict[tuple[str, str], tuple[str, ...]] = {}
"""Weighted tenses by kind of clause and span."""

for _kind in s.KINDS:
    TENSES |= {
        (_kind, ANYTIME): repeat(
            present=26, progressive=12, past=24, perfect=14, future=10, modal=16
        ),
        (_kind, PAST): repeat(past=5, modal=1),
        (_kind, NOW): repeat(present=6, progressive=3, perfect=2, future=2, modal=3),
    }
for _span in (ANYTIME, NOW):
    TENSES |= {
        (s.IF, _span): repeat(present=3, perfect=1, modal=1),
        (s.WHEN, _span): (s.PRESENT,),
        (s.BEFORE, _span): (s.PRESENT,),
    }
TENSES |= {(s.WHEN, PAST): (s.PAST,), (s.BEFORE, PAST): (s.PAST,)}

_COPULA_MODALS = ("können", "müssen", "sollen")
_DESCRIBED: tuple[tuple[str, Pool], ...] = tuple(
    (name, (name,))
    for name in (
        *("place", "animal", "thing", "furniture", "clothing", "vehicle"),
        *("text", "opening", "food", "dish", "drink", "drink"),
    )
)
_GOODS: tuple[Pool, ...] = tuple(
    (name,) for name in ("thing", "furniture", "clothing", "vehicle", "text", "food")
)


class Predicates(Phrases):
    """Draws what every clause has, and whole clauses whose content is a predicate."""

    def verb(self, frame: str, tense: str, kind: str) -> Verb:
        verbs = self.inventory.verbs.get((frame, tense, kind))
        if verbs is None:
            raise DeadEnd
        return self.pick(verbs)

    def inflect(self, clause: Clause, span: str) -> None:
        """Choose the modal verb and the negation, or a negative subject."""
        if clause.tense == s.MODAL:
            past = span == PAST or (span == ANYTIME and self.random() < 0.4)
            modals = self.inventory.modals.get((clause.kind, past))
            if modals is None:
                raise DeadEnd
            clause.modal = self.pick(modals)
        draw = self.random()
        if draw < 0.2 and clause.kind != s.BEFORE:
            clause.negated = True
        elif draw < 0.22 and isinstance(clause.subject, NounPhrase):
            clause.subject = self.noun_phrase("no-subject", (clause.subject.noun.category,))

    def when(self, clause: Clause, position: str) -> s.Time | s.PrepositionalPhrase:
        """A time that fits the clause's tense."""
        past = clause.modal is not None and clause.modal.past
        return self.time(position, s.PAST if past else clause.tense)

    def copula(
        self,
        kind: str,
        tense: str,
        *,
        span: str = ANYTIME,
        subject: Argument | None = None,
        adjuncts: float = 0.0,
        category: str = "person",
    ) -> Clause:
        """A clause with "be"; a given `subject` is a relative pronoun, its head of `category`."""
        if tense == s.PROGRESSIVE or (tense == s.PERFECT and span == NOW):
            tense = s.PRESENT
        elif tense == s.PERFECT:
            tense = s.PAST if kind not in (s.IF, s.WHEN, s.BEFORE) else s.PRESENT
        if subject is None:
            if self.random() < 0.4:
                category, pool = self.pick(_DESCRIBED)
                mass = category in MASS_CATEGORIES
                subject = self.noun_phrase("subject", pool, adjective=0.5 if mass else 0.15)
            else:
                subject = self.subject()
        clause = Clause(kind, COPULA, tense, subject)
        self.inflect(clause, span)
        if clause.modal is not None and clause.modal.lemma not in _COPULA_MODALS:
            raise DeadEnd
        draw = self.random()
        if category != "person" or draw > 0.5:
            clause.predicate = self._quality(kind, category)
        elif draw < 0.2:
            ages = self.inventory.numbers.get(("age", s.POSITION[kind]))
            if ages is None:
                raise DeadEnd
            clause.predicate = s.Age(self.pick(ages))
        elif draw < 0.32:
            clause.place = self.place()
        else:
            clause.predicate = self._profession(clause)
        if clause.place is not None and self.random() < 0.4 * adjuncts:
            clause.time = self.when(clause, s.POSITION[kind])
        return clause

    def _profession(self, clause: Clause) -> NounPhrase:
        """ "is a good teacher": in the subject's number and natural gender."""
        subject = clause.subject
        if isinstance(subject, NounPhrase):
            feminine = subject.noun.gender == FEMININE
        elif isinstance(subject, Relativizer):
            feminine = subject.column == FEMININE
        else:
            feminine = subject is d.SHE
        plural = "plural-" if subject.person == d.PLURAL_PERSON else ""
        name = f"{'negated-' if clause.negated else ''}{plural}predicate"
        pool = ("profession_f",) if feminine else ("profession_m",)
        return self.noun_phrase(name, pool, adjective=1.0)

    def _quality(self, kind: str, category: str) -> s.Quality | s.Comparison:
        draw = self.random()
        pattern = "comparison" if draw < 0.2 and category == "person" else "predicate"
        fitting = self.inventory.predicates.get((pattern, s.POSITION[kind]), {}).get(category)
        if fitting is None:
            raise DeadEnd
        adjective = self.pick(fitting)
        if pattern == "comparison":
            return s.Comparison(adjective, self.noun_phrase("standard", PERSON))
        other = self.pick(fitting)
        if draw > 0.8 and other.scale != adjective.scale:
            return s.Quality((adjective, other))
        return s.Quality((adjective,))

    def price(self, kind: str, tense: str, subject: Argument | None) -> Clause:
        """ "costs three hundred euros": goods cost; a given subject stands for people."""
        if subject is not None or tense in (s.PAST, s.MODAL):
            raise DeadEnd
        if tense != s.FUTURE:
            tense = s.PRESENT
        verb = self.verb("price", tense, kind)
        clause = Clause(kind, verb, tense, self.noun_phrase("subject", self.pick(_GOODS)))
        clause.negated = self.chance(0.15)
        euros = 2 + int(self.random() * 98) if self.chance(0.5) else self.round_number()
        clause.predicate = s.Price(euros)
        return clause
