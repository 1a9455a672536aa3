"""Phrases, which are in words already, and clauses, whose order is each language's own."""

import dataclasses

from flaxformer_mt.grammar import words as w

# (lemma, construction); a lemma is its German citation form.
Combination = tuple[str, str]

# Kinds of clauses. In all others the German finite verb comes last.
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

    `front` comes before the subject: a relative pronoun, a question word or phrase, or the first
    phrase of a "fronted" clause. It's in no other field: the subject of "who sleeps" is empty.
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
        for field in vars(self).values():
            if isinstance(field, BilingualPhrase):
                shown += field.shown
        return BilingualPhrase(_english(self), _german(self), shown)


def _english(clause: Clause) -> str:
    """Subject, verb, object, with do-support, agreement and particles."""
    is_question = clause.kind == "question"
    support = clause.negated or (is_question and bool(clause.subject))
    auxiliary, verb = _english_verb(clause, support)
    subject = clause.subject.english

    words = [w.CLAUSES[clause.kind].english, clause.front.english]
    if clause.kind == "fronted" and clause.front:
        words.append(",")
    words += [auxiliary, subject] if is_question else [subject, auxiliary]
    words += ["not" if clause.negated else "", clause.frequency.english, verb]

    particle = BilingualPhrase(clause.verb.english_particle, "")
    arguments = [clause.recipient, clause.object]
    if clause.verb.movable and clause.object.word in w.PRONOUNS:
        arguments.append(particle)
    else:
        arguments.insert(0, particle)
    adverbials = [clause.manner, clause.companion, clause.place, clause.time]
    phrases = [*arguments, clause.predicate, *adverbials, clause.complement]
    words += [phrase.english for phrase in phrases]
    return " ".join(filter(None, words))


def _english_verb(clause: Clause, support: bool) -> tuple[str, str]:
    """(auxiliary, verb): "not" follows the auxiliary, a question inverts it.

    `support` says that there must be an auxiliary: "do" if there is no other.
    """
    verb, tense, person = clause.verb, clause.tense, clause.subject.person
    if clause.modal is not w.NO_WORD:
        return _english_modal(clause, support)
    if tense == "progressive":
        return _BE[person], verb.ing
    if tense == "perfect":
        return "has" if person == "er" else "have", verb.participle
    if verb is w.COPULA:
        return (_WAS if tense == "past" else _BE)[person], ""
    if support:
        return "did" if tense == "past" else _do(person), verb.english
    if tense == "past":
        return "", verb.past
    return "", verb.third if person == "er" else verb.english


def _english_modal(clause: Clause, support: bool) -> tuple[str, str]:
    """As `_english_verb`, of a clause with a modal verb."""
    verb, modal, person = clause.verb, clause.modal, clause.subject.person
    if modal.english:
        return modal.english, verb.english
    if support:
        return "did" if modal.past else _do(person), f"{modal.base} {verb.english}"
    return "", f"{modal.third if person == 'er' else modal.finite} {verb.english}"


def _do(person: str) -> str:
    return "does" if person == "er" else "do"


def _german(clause: Clause) -> str:
    """The finite verb second or last, agreement and negation."""
    finite, particle, nonfinite = _german_verb(clause)
    subject = clause.subject.german
    middle_field = _middle_field(clause)

    conjunction = w.CLAUSES[clause.kind].german
    if clause.kind == "when" and clause.tense == "past":
        conjunction = "als"
    words = [conjunction, clause.front.german]
    if clause.kind not in VERB_SECOND:
        words += [subject, *middle_field, nonfinite, particle + finite]
    else:
        words += [subject, finite] if clause.kind == "main" else [finite, subject]
        words += [*middle_field, particle, nonfinite]
    if clause.complement:
        words += [",", clause.complement.german]
    return " ".join(filter(None, words))


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
    pronouns = [argument for argument in arguments if argument.word in w.PRONOUNS]
    nouns = [argument for argument in reversed(arguments) if argument not in pronouns]
    # "not a car" is "kein Auto": an indefinite object or predicate negates.
    indefinite = (clause.object, clause.predicate)
    negation = []
    if clause.negated and not any(phrase.determiner.negative for phrase in indefinite):
        negation = [BilingualPhrase("", "nicht")]

    times = [clause.time, clause.frequency]
    adverbials = [clause.manner, clause.companion, clause.place]
    phrases = [*pronouns, *times, *nouns, *negation, *adverbials, clause.predicate]
    return [phrase.german for phrase in phrases]
