"""Draws sentences from the combinations that a split allows: clauses of every kind, joined.

Two rules make the source determine its translation. No adjunct could belong to either of two
clauses: nothing follows an object's relative clause, and a clause with a complement has its
adjuncts in front. A phrase has a possessor or a relative clause, not both.
"""

import contextlib

from flaxformer_mt.grammar import words as w
from flaxformer_mt.grammar.clauses import NOTHING, BilingualPhrase, Clause
from flaxformer_mt.grammar.phrases import (
    DeadEnd,
    PhraseSampler,
    Pool,
    prepositional,
    pronoun,
    relative_pronoun,
)
from flaxformer_mt.grammar.splits import repeat, tenses

_FRAMES = repeat(
    "42 transitive, 16 intransitive, 11 motion, 8 dative, 10 ditransitive, 2 placing, "
    "20 copula, 3 price"
)
_COPULA_MODALS = ("können", "müssen", "sollen")
_DESCRIBED = repeat(
    "1 place, 1 animal, 1 thing, 1 furniture, 1 clothing, 1 vehicle, 1 text, 1 opening, 1 food, "
    "1 dish, 2 drink"
)
_GOODS = ("thing", "furniture", "clothing", "vehicle", "text", "food")
_ADVERBIAL = ("intransitive", "transitive")
_EDIBLE = w.MASS | {"food"}
_POINTING = ("the", "this", "possessive")
_BEFORE_KINDS = repeat("4 because, 3 although, 3 if, 4 when")
_AFTER_KINDS = repeat("5 because, 3 although, 2 if, 3 when, 3 before")
_COMMENTS = [BilingualPhrase(word.english, word.german) for word in w.ADVERBS["comment"]]


def _punctuated(text: str, mark: str) -> str:
    """Commas joined to words, doubled or final ones merged, a capital in front."""
    text = text.replace(" , ,", " ,").removesuffix(" ,").replace(" ,", ",")
    return text[0].upper() + text[1:] + mark


class SentenceSampler(PhraseSampler):
    """Draws whole sentences."""

    def sentence(self) -> BilingualPhrase:
        """One sentence, cased and punctuated; dead ends are drawn again."""
        while True:
            with contextlib.suppress(DeadEnd):
                text, mark = self._sentence()
                text.english = _punctuated(text.english, mark)
                text.german = _punctuated(text.german, mark)
                return text

    def _sentence(self) -> tuple[BilingualPhrase, str]:
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
            return self._joined(kind, "fronted", BilingualPhrase(",", ","), self._span(kind)), "."
        if draw < 0.8:
            kind = self.pick(_AFTER_KINDS)
            return self._joined("main", kind, BilingualPhrase("", ","), self._span(kind)), "."
        if draw < 0.91:
            return self._reported()
        return self._coordinated(), "."

    def _joined(
        self, first: str, second: str, joint: BilingualPhrase, span: str
    ) -> BilingualPhrase:
        """Two clauses of these kinds."""
        before = self.clause(first, span, relatives=0.4, adjuncts=0.6).phrase()
        after = self.clause(second, span, relatives=0.4, adjuncts=0.6).phrase()
        return before + joint + after

    def _coordinated(self) -> BilingualPhrase:
        """Two main clauses, joined by "and" or "but"."""
        span = self._span("main")
        first = self.clause("main", span, relatives=0.0, adjuncts=0.5).phrase()
        second = self.clause("main", span, relatives=0.0, adjuncts=0.5).phrase()
        if self.chance(0.6):
            return first + BilingualPhrase(", and", "und") + second
        return first + BilingualPhrase(", but", ", aber") + second

    def _span(self, kind: str) -> str:
        return "past" if kind != "if" and self.chance(0.45) else "now"

    def _fronted(self) -> Clause:
        clause = self.clause("fronted", relatives=0.8, adjuncts=0.3)
        draw = self.random()
        if draw < 0.35 and not clause.frequency and not clause.predicate:
            clause.front, clause.time = self.when(clause, "front"), NOTHING
        elif draw < 0.55 and self.happens(clause):
            clause.front, clause.place = clause.place or self.place(), NOTHING
        elif draw < 0.8 and clause.object.category:
            if clause.object.determiner.kind not in _POINTING:
                raise DeadEnd
            clause.front, clause.object = clause.object, NOTHING
        else:
            clause.front = self.pick(_COMMENTS)
        return clause

    def _question(self) -> Clause:
        clause = self.clause("question", relatives=0.3, adjuncts=0.5)
        frame = clause.verb.frame
        draw = self.random()
        if draw < 0.4:
            return clause
        if draw < 0.6:
            clause.front = self._asked_adverb(clause)
        elif draw < 0.72 and frame not in ("copula", "price"):
            clause.front, clause.subject = pronoun(w.WHO, "nominative"), NOTHING
        elif frame == "dative":
            clause.front, clause.recipient = pronoun(w.WHO, "dative"), NOTHING
        elif clause.object and frame != "placing":
            clause.front = self._asked_object(clause.object.category)
            clause.object = NOTHING
        return clause

    def _asked_adverb(self, clause: Clause) -> BilingualPhrase:
        draw = self.random()
        plain = not clause.negated and not clause.frequency
        if draw < 0.4:
            return BilingualPhrase("why", "warum")
        if draw < 0.7 and plain and not clause.time:
            return BilingualPhrase("when", "wann")
        if plain and self.happens(clause) and not clause.place:
            return BilingualPhrase("where", "wo")
        return NOTHING

    def _asked_object(self, category: str) -> BilingualPhrase:
        if not category or self.chance(0.4):
            people = not category or category in w.PEOPLE
            return pronoun(w.WHO if people else w.WHAT, "accusative")
        return self.noun_phrase("which-object", (category,))

    def _reported(self) -> tuple[BilingualPhrase, str]:
        """A clause with "that" or "whether", and the mark at its end."""
        draw = self.random()
        if draw < 0.7:
            kind = "main"
        elif draw < 0.85:
            kind = "fronted"
        else:
            kind = "question"
        frame = "that" if self.chance(0.65) else "whether"
        span = self._span(kind)
        clause = self._begin(kind, span)
        self._complete(clause, frame)
        if kind == "fronted" and self.chance(0.5):
            clause.front = self.pick(_COMMENTS)
        elif kind == "fronted":
            clause.front = self.when(clause, "front")
        complement_span = "past" if span == "past" else "anytime"
        clause.complement = self.clause(frame, complement_span, 0.4, 0.6).phrase()
        return clause.phrase(), "?" if kind == "question" else "."

    def _begin(self, kind: str, span: str = "anytime") -> Clause:
        tense = self.pick(tenses(kind, span))
        return Clause(kind, tense, span, modal=w.WILL if tense == "future" else w.NO_WORD)

    def clause(
        self,
        kind: str,
        span: str = "anytime",
        relatives: float = 0.0,
        adjuncts: float = 1.0,
        subject: BilingualPhrase = NOTHING,
    ) -> Clause:
        """A clause; `relatives` and `adjuncts` scale chances.

        Only a relative clause about a person has a `subject` in advance.
        """
        frame = self.pick(_FRAMES)
        clause = self._begin(kind, span)
        clause.subject = subject
        if frame == "copula":
            self._copula(clause, adjuncts)
        elif frame == "price":
            self._price(clause)
        else:
            self._complete(clause, frame, animals=0.25)
            self._arguments(clause)
            closed = self._modify(clause, relatives)
            self._adjuncts(clause, adjuncts, closed=closed)
        return clause

    def _complete(self, clause: Clause, frame: str, animals: float = 0.0) -> None:
        """A verb and, unless there is one, its subject, perhaps an animal."""
        clause.verb, clause.shown = self.draw(f"{clause.tense}.{clause.kind}", frame)
        if clause.subject is NOTHING:
            animal = clause.verb.animals and animals and self.chance(animals)
            clause.subject = self.subject(w.ANIMATE if animal else w.PEOPLE)
        self._inflect(clause)

    def _inflect(self, clause: Clause) -> None:
        """Choose the modal verb and the negation, or a negative subject."""
        if clause.tense == "modal":
            past = clause.span == "past" or (clause.span == "anytime" and self.chance(0.4))
            tense = "past" if past else "present"
            clause.modal, used = self.draw(f"{tense}.{clause.kind}", "modal")
            clause.shown += used
        draw = self.random()
        if draw < 0.2 and clause.kind != "before":
            clause.negated = True
        elif draw < 0.22 and clause.subject.determiner.kind:
            clause.subject = self.noun_phrase("no-subject", (clause.subject.category,))

    def happens(self, clause: Clause) -> bool:
        """Whether the clause is an action with a place."""
        visited = clause.object.category == "place"
        return clause.verb.frame in _ADVERBIAL and not (clause.verb.stative or visited)

    def _copula(self, clause: Clause, adjuncts: float = 0.0) -> None:
        """A clause with "be"; only a relative clause has a subject already."""
        if clause.kind == "before":  # a state gives no time to be before
            raise DeadEnd
        if clause.tense in ("progressive", "perfect"):
            past = clause.tense == "perfect" and clause.span == "anytime"
            clause.tense = "past" if past else "present"
        if clause.subject is NOTHING:
            clause.subject = self._described_subject()
        self._inflect(clause)
        if clause.tense == "modal" and clause.modal.german not in _COPULA_MODALS:
            raise DeadEnd
        self._describe(clause)
        if clause.place and self.chance(0.4 * adjuncts):
            clause.time = self.when(clause, clause.position)

    def _described_subject(self) -> BilingualPhrase:
        """The subject of a clause with "be": a thing or an animal, or someone."""
        if not self.chance(0.4):
            return self.subject()
        category = self.pick(_DESCRIBED)
        adjective = 0.5 if category in w.MASS else 0.15
        return self.noun_phrase("subject", (category,), adjective=adjective)

    def _describe(self, clause: Clause) -> None:
        """The subject's quality, or a person's age, place or profession."""
        category = clause.subject.category
        is_person = category in ("", *w.PEOPLE)
        draw = self.random()
        if not is_person or draw > 0.5:
            clause.predicate = self.quality(clause, "person" if is_person else category)
        elif draw < 0.2:
            age = self.fixed(f"age.{clause.position}")
            clause.predicate = age + BilingualPhrase("years old", "Jahre alt")
        elif draw < 0.32:
            clause.place = self.place()
        else:
            clause.predicate = self.profession(clause)

    def _price(self, clause: Clause) -> None:
        """ "costs three hundred euros": goods cost; a subject in advance would be a person."""
        if clause.subject is not NOTHING or clause.tense in ("past", "modal"):
            raise DeadEnd
        if clause.tense != "future":
            clause.tense = "present"
        clause.verb, clause.shown = self.draw(f"{clause.tense}.{clause.kind}", "price")
        clause.subject = self.noun_phrase("subject", (self.pick(_GOODS),))
        clause.negated = self.chance(0.15)
        euros = self.number(2, 99) if self.chance(0.5) else self.round_number()
        clause.predicate = euros + BilingualPhrase("euros", "Euro")

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

    def _someone(self, clause: Clause, name: str, pool: Pool) -> BilingualPhrase:
        """A noun phrase, or a pronoun other than the subject (which would be reflexive)."""
        if self.chance(0.35):
            word = self.pick(w.PRONOUNS)
            if word is not clause.subject.word:
                return pronoun(word, "dative" if name == "recipient" else "accusative")
        return self.noun_phrase(name, pool)

    def _modify(self, clause: Clause, relatives: float) -> bool:
        """Maybe a relative clause or a possessor; True if one on the object ends the clause."""
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
                clause.object += BilingualPhrase("of", "") + owner
            else:
                clause.subject += BilingualPhrase("of", "") + owner
        return False

    def _relative(self, head: BilingualPhrase, outer: Clause) -> BilingualPhrase:
        draw = self.random()
        clause = self._begin("relative")
        people = head.category in w.PEOPLE
        if draw < (0.55 if people else 0.35):
            case, frame = "nominative", ""
            clause.subject = BilingualPhrase("", "", word=head.word, person=head.person)
            if people:
                clause = self.clause("relative", adjuncts=0.6, subject=clause.subject)
            else:
                self._copula(clause)
        else:
            case, frame = "accusative", head.category
            if people and draw < 0.78:
                case, frame = "dative", "dative" if draw < 0.7 else "intransitive"
            self._complete(clause, frame)
            self._adjuncts(clause, 0.4, company=False)
        if clause.verb is outer.verb:
            raise DeadEnd
        clause.front = relative_pronoun(head, case)
        if frame == "intransitive":
            clause.front = prepositional("with", clause.front)
        return BilingualPhrase("", ",") + clause.phrase() + BilingualPhrase("", ",")

    def _adjuncts(
        self, clause: Clause, scale: float, *, closed: bool = False, company: bool = True
    ) -> None:
        """Frequency or time, direction, manner or company or place.

        A clause that a relative clause ends (`closed`) gets only frequency and direction.
        """
        draw = self.random()
        may_repeat = not clause.negated and clause.tense in ("present", "past", "perfect")
        if may_repeat and draw < 0.08:
            clause.frequency = self.fixed(f"frequency.{clause.position}")
        if clause.verb.frame == "motion":
            clause.place = self.direction()
        if closed:
            return
        if 0.08 <= draw < 0.08 + 0.32 * scale:
            clause.time = self.when(clause, clause.position)
        self._circumstance(clause, scale, company)

    def _circumstance(self, clause: Clause, scale: float, company: bool) -> None:
        """Company, if it is allowed, or manner or place, where the verb takes it."""
        draw = self.random()
        edible = clause.object.category in _EDIBLE
        if draw < (0.35 if edible else 0.12) * scale:
            if company and clause.verb.frame in ("motion", *_ADVERBIAL):
                clause.companion = self.company(clause, edible)
        elif draw < 0.24 * scale:
            if self.happens(clause) and not clause.negated:
                clause.manner = self.fixed(f"manner.{clause.position}")
        elif draw < 0.5 * scale:
            if self.happens(clause):
                clause.place = self.place()
