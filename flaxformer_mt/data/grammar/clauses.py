"""Phrases, which are in words already, and clauses, whose order is each language's own."""

import dataclasses

from flaxformer_mt.data.grammar import words as w

# (lemma, construction); a lemma is its German citation form.
Combination = tuple[str, str]

# Kinds of clauses. In all but these the German finite verb stands last.
VERB_SECOND = ("main", "fronted", "question")
POSITIONS = (*VERB_SECOND, "final")  # kinds as adverbials and predicates see them

_BE = {"ich": "am", "du": "are", "er": "is", "wir": "are"}
_WAS = {"ich": "was", "du": "were", "er": "was", "wir": "were"}
_GERMAN = {verb.german: verb for verb in (*w.VERBS, w.COPULA)}


@dataclasses.dataclass(eq=False, slots=True)
class BilingualPhrase:
    """Words of both languages and the combinations that they show.

    `word` is its noun, pronoun, adjective or number. The `person` of an argument is "ich", "du",
    "er" or "wir", as in the tables of verbs.
    """

    english: str
    german: str
    shown: tuple[Combination, ...] = ()
    word: w.Word = w.NO_WORD
    determiner: w.Word = w.NO_WORD
    person: str = "er"

    @property
    def category(self) -> str:
        return self.word.category

    def __bool__(self) -> bool:
        return bool(self.english)

    def __add__(self, other: "BilingualPhrase") -> "BilingualPhrase":
        """The words of both; all else is the first one's."""
        return BilingualPhrase(
            f"{self.english} {other.english}".strip(),
            f"{self.german} {other.german}".strip(),
            self.shown + other.shown,
            self.word,
            self.determiner,
            self.person,
        )


NOTHING = BilingualPhrase("", "")


@dataclasses.dataclass(eq=False)
class Clause:
    """One clause: a verb, its arguments and its adjuncts; `recipient` is the dative argument.

    `front` is what stands before the subject: a relative pronoun, what is asked for, or what a
    "fronted" clause begins with. It's in no other field: the subject of "who sleeps" is empty.
    """

    kind: str
    tense: str
    span: str  # in which a sentence's clauses agree
    verb: w.Word = w.COPULA
    shown: tuple[Combination, ...] = ()  # by the verbs
    modal: w.Word = w.NO_WORD
    negated: bool = False
    front: BilingualPhrase = NOTHING
    subject: BilingualPhrase = NOTHING
    object: BilingualPhrase = NOTHING
    recipient: BilingualPhrase = NOTHING
    predicate: BilingualPhrase = NOTHING
    time: BilingualPhrase = NOTHING
    frequency: BilingualPhrase = NOTHING
    manner: BilingualPhrase = NOTHING
    companion: BilingualPhrase = NOTHING
    place: BilingualPhrase = NOTHING
    complement: BilingualPhrase = NOTHING

    @property
    def position(self) -> str:
        return self.kind if self.kind in VERB_SECOND else "final"

    def phrase(self) -> BilingualPhrase:
        """The clause in words."""
        shown = self.shown
        for part in vars(self).values():
            if isinstance(part, BilingualPhrase):
                shown += part.shown
        return BilingualPhrase(_english(self), _german(self), shown)


def _english(clause: Clause) -> str:
    """Subject, verb, object, with do-support, agreement and particles."""
    question = clause.kind == "question"
    out = [w.CLAUSES[clause.kind].english, clause.front.english]
    if clause.kind == "fronted" and clause.front:
        out.append(",")
    support = clause.negated or (question and bool(clause.subject))
    auxiliary, verb = _english_verb(clause, support)
    subject = clause.subject.english
    out += [auxiliary, subject] if question else [subject, auxiliary]
    out += ["not" if clause.negated else "", clause.frequency.english, verb]
    particle = BilingualPhrase(clause.verb.english_particle, "")
    movable = clause.verb.movable and clause.object.word in w.PRONOUNS
    rest = [clause.recipient, clause.object]
    rest.insert(len(rest) if movable else 0, particle)
    rest += [clause.predicate, clause.manner, clause.companion]
    rest += [clause.place, clause.time, clause.complement]
    out += [phrase.english for phrase in rest]
    return " ".join(filter(None, out))


def _english_verb(clause: Clause, support: bool) -> tuple[str, str]:
    """(auxiliary, verb): "not" follows the auxiliary, a question inverts it.

    `support` says that there must be an auxiliary: "do" if there is no other.
    """
    verb, tense, modal = clause.verb, clause.tense, clause.modal
    person = clause.subject.person
    third = person == "er"
    do = "does" if third else "do"
    if modal is not w.NO_WORD:
        if modal.english:
            return modal.english, verb.english
        if support:
            return "did" if modal.past else do, f"{modal.base} {verb.english}"
        return "", f"{modal.third if third else modal.finite} {verb.english}"
    if tense == "progressive":
        return _BE[person], verb.ing
    if tense == "perfect":
        return "has" if third else "have", verb.participle
    if verb is w.COPULA:
        return (_WAS if tense == "past" else _BE)[person], ""
    if support:
        return "did" if tense == "past" else do, verb.english
    if tense == "past":
        return "", verb.past
    return "", verb.third if third else verb.english


def _german(clause: Clause) -> str:
    """The finite verb second or last, agreement and negation."""
    finite, particle, nonfinite = _german_verb(clause)
    past = clause.kind == "when" and clause.tense == "past"
    out = ["als" if past else w.CLAUSES[clause.kind].german, clause.front.german]
    subject, rest = clause.subject.german, _middle_field(clause)
    if clause.kind not in VERB_SECOND:
        out += [subject, *rest, nonfinite, particle + finite]
    else:
        out += [subject, finite] if clause.kind == "main" else [finite, subject]
        out += [*rest, particle, nonfinite]
    if clause.complement:
        out += [",", clause.complement.german]
    return " ".join(filter(None, out))


def _german_verb(clause: Clause) -> tuple[str, str, str]:
    """(finite form, separated particle, infinitive or participle), some of them empty."""
    verb, tense, person = clause.verb, clause.tense, clause.subject.person
    if tense == "past" and verb.preterite_ich:
        return getattr(verb, f"preterite_{person}"), "", ""
    if tense in ("past", "perfect"):
        return getattr(_GERMAN[verb.auxiliary], person), "", verb.german_participle
    if clause.modal is not w.NO_WORD:
        return getattr(clause.modal, person), "", verb.german
    return getattr(verb, person), verb.particle, ""


def _middle_field(clause: Clause) -> list[str]:
    """Pronouns, time, dative, accusative, nicht, manner, company, place, predicate."""
    arguments = [clause.object, clause.recipient]
    out = [one for one in arguments if one.word in w.PRONOUNS]
    out += [clause.time, clause.frequency]
    out += [one for one in reversed(arguments) if one not in out]
    # "not a car" is "kein Auto": an indefinite object or predicate negates.
    indefinite = (clause.object, clause.predicate)
    if clause.negated and not any(one.determiner.negative for one in indefinite):
        out.append(BilingualPhrase("", "nicht"))
    out += [clause.manner, clause.companion, clause.place, clause.predicate]
    return [one.german for one in out]
