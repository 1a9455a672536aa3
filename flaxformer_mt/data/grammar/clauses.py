"""Phrases, which are in words already, and clauses, whose order is each language's own."""

import dataclasses

from flaxformer_mt.data.grammar.words import (
    CONJUNCTIONS,
    COPULA,
    NO_DETERMINER,
    VERBS,
    Noun,
    Verb,
    Word,
)

Combination = tuple[str, str]  # (lemma, construction); a lemma is its German citation form

VERB_SECOND = ("main", "fronted", "question")  # in all others the German finite verb stands last
KINDS = (*VERB_SECOND, *CONJUNCTIONS, "relative")
POSITIONS = (*VERB_SECOND, "final")  # kinds as adverbials and predicates see them
TENSES = ("present", "progressive", "past", "perfect", "future", "modal")

_BE = {"ich": "am", "du": "are", "er": "is", "wir": "are"}
_WAS = {"ich": "was", "du": "were", "er": "was", "wir": "were"}
_WERDEN = {"ich": "werde", "du": "wirst", "er": "wird", "wir": "werden"}
_GERMAN = {verb.german: verb for verb in (*VERBS, COPULA)}


@dataclasses.dataclass(eq=False)
class Phrase:
    """Words of both languages and the combinations that they show.

    `person` is "ich", "du", "er" or "wir", as in the tables of verbs. `noun` and `determiner` are
    those of a noun phrase, `pronoun` that of a personal pronoun.
    """

    english: str
    german: str
    shown: frozenset[Combination] = frozenset()
    person: str = "er"
    noun: Noun | None = None
    determiner: Word = NO_DETERMINER
    pronoun: Word | None = None
    feminine: bool = False  # of people: their natural gender

    @property
    def category(self) -> str:
        return self.noun.category if self.noun is not None else ""

    def __bool__(self) -> bool:
        return bool(self.english)

    def add(self, other: "Phrase", english: str = " ", german: str = " ") -> None:
        """Append another phrase after a joint in both languages."""
        self.english += english + other.english
        self.german += german + other.german
        self.shown |= other.shown


NOTHING = Phrase("", "")


@dataclasses.dataclass(eq=False)
class Clause:
    """One clause: a verb, its arguments and its adjuncts.

    `front` is the field that stands first: the subject, a relative pronoun, what is asked for, or
    what a "fronted" clause puts there. It is "" in a yes-no question and in a "fronted" clause that
    follows a subordinate one.
    `recipient` is the dative argument, `asked` the adverb asked for ("where", "when" or "why").
    """

    kind: str
    verb: Verb
    tense: str
    subject: Phrase
    shown: frozenset[Combination] = frozenset()  # by the verbs
    modal: Word | None = None
    negated: bool = False
    front: str = "subject"
    object: Phrase = NOTHING
    recipient: Phrase = NOTHING
    predicate: Phrase = NOTHING
    time: Phrase = NOTHING
    frequency: Phrase = NOTHING
    manner: Phrase = NOTHING
    companion: Phrase = NOTHING
    place: Phrase = NOTHING
    comment: Phrase = NOTHING
    asked: Phrase = NOTHING
    complement: Phrase = NOTHING

    def __post_init__(self) -> None:
        if self.kind in ("fronted", "question"):
            self.front = ""

    @property
    def position(self) -> str:
        return self.kind if self.kind in VERB_SECOND else "final"

    def first(self) -> list[Phrase]:
        """The phrase in front, if there is one."""
        return [getattr(self, self.front)] if self.front else []

    def behind(self, *fields: str) -> list[Phrase]:
        """Those of the fields that are filled and don't stand in front."""
        return [getattr(self, field) for field in fields if field != self.front]

    def phrase(self) -> Phrase:
        """The clause in words."""
        parts = [part.shown for part in vars(self).values() if isinstance(part, Phrase)]
        return Phrase(_english(self), _german(self), self.shown.union(*parts))


def _english(clause: Clause) -> str:
    """Subject, verb, object, with do-support, agreement and particles."""

    def behind(*fields: str) -> list[str]:
        return [phrase.english for phrase in clause.behind(*fields)]

    out = [clause.kind] if clause.kind in CONJUNCTIONS else []
    out += [phrase.english for phrase in clause.first()]
    if clause.kind == "fronted" and clause.front:
        out.append(",")
    inverted = clause.kind == "question" and clause.front != "subject"
    auxiliary, verb = _english_verb(clause, support=inverted or clause.negated)
    subject = behind("subject")
    out += [auxiliary, *subject] if inverted else [*subject, auxiliary]
    out += ["not" if clause.negated else "", *behind("frequency"), verb]
    objects, particle = behind("recipient", "object"), clause.verb.english_particle
    movable = clause.verb.movable and clause.object.pronoun is not None
    out += [*objects, particle] if movable else [particle, *objects]
    out += behind("predicate", "manner", "companion", "place", "time", "complement")
    return " ".join(filter(None, out))


def _english_verb(clause: Clause, support: bool) -> tuple[str, str]:
    """(auxiliary, verb): "not" follows the auxiliary, a question inverts it.

    `support` says that there must be an auxiliary: "do" if there is no other.
    """
    verb, tense, modal, person = clause.verb, clause.tense, clause.modal, clause.subject.person
    third = person == "er"
    do = "does" if third else "do"
    if modal is not None:
        if modal.english:
            return modal.english, verb.english
        if support:
            return "did" if modal.past else do, f"{modal.base} {verb.english}"
        return "", f"{modal.third if third else modal.finite} {verb.english}"
    if tense == "progressive":
        return _BE[person], verb.ing
    if tense == "perfect":
        return "has" if third else "have", verb.participle
    if tense == "future":
        return "will", verb.english
    if verb is COPULA:
        return (_WAS if tense == "past" else _BE)[person], ""
    if support:
        return "did" if tense == "past" else do, verb.english
    if tense == "past":
        return "", verb.past
    return "", verb.third if third else verb.english


def _german(clause: Clause) -> str:
    """The finite verb second or last, agreement and negation."""
    finite, particle, nonfinite = _german_verb(clause)
    out = [CONJUNCTIONS[clause.kind]] if clause.kind in CONJUNCTIONS else []
    if clause.kind == "when" and clause.tense == "past":
        out = ["als"]
    out += [phrase.german for phrase in clause.first()]
    rest = [phrase.german for phrase in clause.behind("subject")] + _middle_field(clause)
    if clause.kind in VERB_SECOND:
        out += [finite, *rest, particle, nonfinite]
    else:
        out += [*rest, nonfinite, particle + finite]
    if clause.complement:
        out += [",", clause.complement.german]
    return " ".join(filter(None, out))


def _german_verb(clause: Clause) -> tuple[str, str, str]:
    """(finite form, separated particle, infinitive or participle); empty where there is none."""
    verb, tense, person = clause.verb, clause.tense, clause.subject.person
    if tense == "past" and verb.preterite_ich:
        return getattr(verb, f"preterite_{person}"), "", ""
    if tense in ("past", "perfect"):
        return getattr(_GERMAN[verb.auxiliary], person), "", verb.german_participle
    if tense == "future":
        return _WERDEN[person], "", verb.german
    if clause.modal is not None:
        return getattr(clause.modal, person), "", verb.german
    return getattr(verb, person), verb.particle, ""


def _middle_field(clause: Clause) -> list[str]:
    """Pronouns, time, dative, accusative, nicht, manner, company, place, predicate."""
    arguments = clause.behind("object", "recipient")
    out = [phrase for phrase in arguments if phrase.pronoun]
    out += clause.behind("time", "frequency")
    out += [phrase for phrase in reversed(arguments) if not phrase.pronoun]
    words = [phrase.german for phrase in out]
    # "not a car" is "kein Auto": the determiner of an indefinite object or predicate negates.
    negating = clause.object.determiner.negative or clause.predicate.determiner.negative
    if clause.negated and not negating:
        words.append("nicht")
    rest = clause.behind("manner", "companion", "place", "predicate")
    return words + [phrase.german for phrase in rest]
