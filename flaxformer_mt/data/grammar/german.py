"""German realisation: agreement and case, verb-second and verb-final order, negation."""

from __future__ import annotations

from flaxformer_mt.data.grammar.determiners import (
    CONJUNCTIONS,
    CONTRACTIONS,
    RELATIVE,
    THE,
    Pronoun,
)
from flaxformer_mt.data.grammar.nouns import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE
from flaxformer_mt.data.grammar.numbers import CARDINALS
from flaxformer_mt.data.grammar.syntax import (
    FUTURE,
    MODAL,
    PAST,
    PERFECT,
    QUESTION,
    VERB_SECOND,
    WHEN,
    Age,
    Argument,
    Clause,
    Comparison,
    Coordination,
    NounPhrase,
    PrepositionalPhrase,
    Price,
    Quality,
    Relativizer,
    Sentence,
    Time,
)
from flaxformer_mt.data.grammar.text import punctuate

_AUXILIARIES = {
    "haben": ("habe", "hast", "hat", "haben"),
    "sein": ("bin", "bist", "ist", "sind"),
    "werden": ("werde", "wirst", "wird", "werden"),
}
_ASKED = {"where": "wo", "when": "wann", "why": "warum"}


def sentence(tree: Sentence) -> str:
    """The German text of a sentence, cased and punctuated."""
    out: list[str] = []
    if tree.before is not None:
        clause(out, tree.before)
        out.append(",")
    clause(out, tree.main)
    if tree.after is not None:
        out.append(",")
        clause(out, tree.after)
    if tree.second is not None:
        if tree.conjunction == "but":
            out += (",", "aber")
        else:
            out.append("und")
        clause(out, tree.second)
    return punctuate(out, "?" if tree.main.kind == QUESTION else ".")


def clause(out: list[str], tree: Clause) -> None:
    """Append a clause's tokens."""
    finite, particle, nonfinite = _verb_forms(tree)
    if tree.kind not in VERB_SECOND:
        _verb_final(out, tree, particle + finite, nonfinite)
        return
    _first_field(out, tree)
    out.append(finite)
    if tree.inverts:
        argument(out, tree.subject, NOMINATIVE)
    _middle_field(out, tree)
    if particle:
        out.append(particle)
    if nonfinite:
        out.append(nonfinite)
    _complement(out, tree)


def _first_field(out: list[str], tree: Clause) -> None:
    """The one constituent before the finite verb; none in a yes-no question."""
    if not tree.inverts:
        argument(out, tree.subject, NOMINATIVE)
    elif tree.asked:
        out.append(_ASKED[tree.asked])
    elif tree.front == "object":
        assert tree.object is not None
        argument(out, tree.object, ACCUSATIVE)
    elif tree.front == "recipient":
        assert tree.recipient is not None
        argument(out, tree.recipient, DATIVE)
    elif tree.front == "time":
        _time(out, tree.time)
    elif tree.front == "place":
        assert tree.place is not None
        prepositional(out, tree.place)
    elif tree.front == "comment":
        assert tree.comment is not None
        out.append(tree.comment.german)


def _verb_final(out: list[str], tree: Clause, finite: str, nonfinite: str) -> None:
    if tree.kind == WHEN and tree.tense == PAST:
        out.append("als")
    elif tree.kind in CONJUNCTIONS:
        out.append(CONJUNCTIONS[tree.kind][1])
    else:
        _relativized(out, tree)
    if not isinstance(tree.subject, Relativizer):
        argument(out, tree.subject, NOMINATIVE)
    _middle_field(out, tree)
    if nonfinite:
        out.append(nonfinite)
    out.append(finite)
    _complement(out, tree)


def _relativized(out: list[str], tree: Clause) -> None:
    """The relative pronoun, in the case of the argument it stands for."""
    if isinstance(tree.subject, Relativizer):
        argument(out, tree.subject, NOMINATIVE)
    elif isinstance(tree.object, Relativizer):
        argument(out, tree.object, ACCUSATIVE)
    elif isinstance(tree.recipient, Relativizer):
        argument(out, tree.recipient, DATIVE)
    else:
        assert tree.companion is not None
        prepositional(out, tree.companion)


def _verb_forms(tree: Clause) -> tuple[str, str, str]:
    """(finite form, separated particle, infinitive or participle); empty where there is none."""
    verb, tense, person = tree.verb, tree.tense, tree.subject.person
    if tense == PAST and verb.preterite is not None:
        return verb.preterite[person], "", ""
    if tense in (PAST, PERFECT):
        return _AUXILIARIES[verb.auxiliary][person], "", verb.participle
    if tense == FUTURE:
        return _AUXILIARIES["werden"][person], "", verb.lemma
    if tense == MODAL:
        assert tree.modal is not None
        return tree.modal.german[person], "", verb.lemma
    return verb.present[person], verb.particle, ""


def _middle_field(out: list[str], tree: Clause) -> None:
    """Pronouns, time, dative, accusative, nicht, manner, company, place, predicate."""
    receiver = tree.recipient if tree.front != "recipient" else None
    target = tree.object if tree.front != "object" else None
    if isinstance(target, Pronoun):
        argument(out, target, ACCUSATIVE)
    if isinstance(receiver, Pronoun):
        argument(out, receiver, DATIVE)
    if tree.front != "time":
        _time(out, tree.time)
    if tree.frequency is not None:
        out.append(tree.frequency.german)
    if isinstance(receiver, (NounPhrase, Coordination)):
        argument(out, receiver, DATIVE)
    if isinstance(target, (NounPhrase, Coordination)):
        argument(out, target, ACCUSATIVE)
    if tree.negated and not _negated_by_determiner(tree):
        out.append("nicht")
    if tree.manner is not None:
        out.append(tree.manner.german)
    if tree.companion is not None and not isinstance(tree.companion.argument, Relativizer):
        prepositional(out, tree.companion)
    if tree.place is not None and tree.front != "place":
        prepositional(out, tree.place)
    if tree.predicate is not None:
        _predicate(out, tree.predicate)


def _negated_by_determiner(tree: Clause) -> bool:
    """ "not a car" is "kein Auto": the determiner of an indefinite object or predicate negates."""
    return any(
        isinstance(part, NounPhrase) and part.determiner.negative
        for part in (tree.object, tree.predicate)
    )


def _complement(out: list[str], tree: Clause) -> None:
    if tree.complement is not None:
        out.append(",")
        clause(out, tree.complement)


def _time(out: list[str], time: Time | PrepositionalPhrase | None) -> None:
    if isinstance(time, Time):
        out.append(time.german)
    elif time is not None:
        prepositional(out, time)


def _predicate(out: list[str], predicate: NounPhrase | Quality | Comparison | Age | Price) -> None:
    if isinstance(predicate, Quality):
        out.append(" und ".join([adjective.german for adjective in predicate.adjectives]))
    elif isinstance(predicate, NounPhrase):
        noun_phrase(out, predicate, NOMINATIVE)
    elif isinstance(predicate, Comparison):
        out += ("so", predicate.adjective.german, "wie")
        noun_phrase(out, predicate.standard, NOMINATIVE)
    elif isinstance(predicate, Age):
        out += (CARDINALS[predicate.years][1], "Jahre alt")
    else:
        out += (CARDINALS[predicate.euros][1], "Euro")


def argument(out: list[str], tree: Argument, case: int) -> None:
    """Append an argument in a case."""
    if isinstance(tree, NounPhrase):
        noun_phrase(out, tree, case)
    elif isinstance(tree, Pronoun):
        out.append(tree.german[case])
    elif isinstance(tree, Relativizer):
        out.append(RELATIVE[case][tree.column])
    else:
        noun_phrase(out, tree.first, case)
        out.append("und")
        noun_phrase(out, tree.second, case)


def noun_phrase(out: list[str], tree: NounPhrase, case: int) -> None:
    """Append a noun phrase: determiner and adjective agree in gender, number and case."""
    column = tree.column
    determiner = tree.determiner
    word = determiner.german[case][column]
    if word:
        out.append(word)
    if tree.number is not None:
        out.append(CARDINALS[tree.number][1])
    if tree.adjective is not None:
        out.append(tree.adjective.forms[determiner.paradigm][case][column])
    out.append(tree.noun.german[tree.plural][case])
    if tree.possessor is not None:
        noun_phrase(out, tree.possessor, GENITIVE)
    if tree.relative is not None:
        out.append(",")
        clause(out, tree.relative)
        out.append(",")


def prepositional(out: list[str], tree: PrepositionalPhrase) -> None:
    """Append a prepositional phrase, preposition and article contracted (im, zum, ins)."""
    preposition = tree.preposition
    start = len(out)
    out.append(preposition.german)
    argument(out, tree.argument, preposition.case)
    if isinstance(tree.argument, NounPhrase) and tree.argument.determiner is THE:
        contracted = CONTRACTIONS.get((preposition.german, out[start + 1]))
        if contracted is not None:
            out[start : start + 2] = [contracted]
