"""German realisation: agreement and case, verb-second and verb-final order, negation."""

from __future__ import annotations

from flaxformer_mt.data.grammar import trees as t
from flaxformer_mt.data.grammar.words import (
    ACCUSATIVE,
    CARDINALS,
    CONJUNCTIONS,
    DATIVE,
    GENITIVE,
    NOMINATIVE,
    RELATIVE_PRONOUNS,
    THE,
    Adverb,
    Pronoun,
)

_AUXILIARIES = {
    "haben": ("habe", "hast", "hat", "haben"),
    "sein": ("bin", "bist", "ist", "sind"),
    "werden": ("werde", "wirst", "wird", "werden"),
}
_ASKED = {"where": "wo", "when": "wann", "why": "warum"}
# Preposition and article that German writes as one word.
_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("in", "das"): "ins",
    ("an", "das"): "ans",
}


def sentence(tree: t.Sentence) -> str:
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
        out += (",", "aber") if tree.conjunction == "but" else ("und",)
        clause(out, tree.second)
    return t.punctuated(out, "?" if tree.main.kind == t.QUESTION else ".")


def clause(out: list[str], tree: t.Clause) -> None:
    """Append a clause's tokens."""
    finite, particle, nonfinite = _verb_forms(tree)
    if tree.kind in t.VERB_SECOND:
        # One constituent before the finite verb; none in a yes-no question.
        if not tree.inverts:
            argument(out, tree.subject, NOMINATIVE)
        elif tree.asked:
            out.append(_ASKED[tree.asked])
        elif tree.front and tree.front != "clause":
            _part(out, getattr(tree, tree.front), _case(tree.front))
        out.append(finite)
        if tree.inverts:
            argument(out, tree.subject, NOMINATIVE)
        _middle_field(out, tree)
        out += [word for word in (particle, nonfinite) if word]
    else:
        if tree.kind == t.RELATIVE:
            _relative_pronoun(out, tree)
        else:
            past = tree.kind == t.WHEN and tree.tense == t.PAST
            out.append("als" if past else CONJUNCTIONS[tree.kind])
        if not isinstance(tree.subject, t.Relativizer):
            argument(out, tree.subject, NOMINATIVE)
        _middle_field(out, tree)
        out += [word for word in (nonfinite, particle + finite) if word]
    if tree.complement is not None:
        out.append(",")
        clause(out, tree.complement)


def argument(out: list[str], tree: t.Argument, case: int) -> None:
    """Append an argument in a case."""
    if isinstance(tree, t.NounPhrase):
        noun_phrase(out, tree, case)
    elif isinstance(tree, Pronoun):
        out.append(tree.german[case])
    elif isinstance(tree, t.Relativizer):
        out.append(RELATIVE_PRONOUNS[case][tree.column])
    else:
        noun_phrase(out, tree.first, case)
        out.append("und")
        noun_phrase(out, tree.second, case)


def noun_phrase(out: list[str], tree: t.NounPhrase, case: int) -> None:
    """Append a noun phrase: determiner and adjective agree in gender, number and case."""
    determiner, column = tree.determiner, tree.column
    if word := determiner.german[case][column]:
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


def _case(field: str) -> int:
    return DATIVE if field == "recipient" else ACCUSATIVE


def _part(out: list[str], part: t.Argument | t.Adjunct | None, case: int = ACCUSATIVE) -> None:
    """An adjunct, or an argument in a case; preposition and article are contracted (im, zum)."""
    if part is None:
        return
    if isinstance(part, t.PrepositionalPhrase):
        preposition, start = part.preposition, len(out)
        out.append(preposition.german)
        argument(out, part.argument, preposition.case)
        if isinstance(part.argument, t.NounPhrase) and part.argument.determiner is THE:
            contracted = _CONTRACTIONS.get((preposition.german, out[start + 1]))
            if contracted is not None:
                out[start : start + 2] = [contracted]
    elif isinstance(part, (t.Time, Adverb)):
        out.append(part.german)
    else:
        argument(out, part, case)


def _relative_pronoun(out: list[str], tree: t.Clause) -> None:
    """It stands in the case of the argument that it stands for."""
    if isinstance(tree.subject, t.Relativizer):
        argument(out, tree.subject, NOMINATIVE)
    elif isinstance(tree.object, t.Relativizer):
        argument(out, tree.object, ACCUSATIVE)
    elif isinstance(tree.recipient, t.Relativizer):
        argument(out, tree.recipient, DATIVE)
    else:
        _part(out, tree.companion)


def _verb_forms(tree: t.Clause) -> tuple[str, str, str]:
    """(finite form, separated particle, infinitive or participle); empty where there is none."""
    verb, tense, person = tree.verb, tree.tense, tree.subject.person
    if tense == t.PAST and verb.preterite:
        return verb.preterite[person], "", ""
    if tense in (t.PAST, t.PERFECT):
        return _AUXILIARIES[verb.auxiliary][person], "", verb.participle
    if tense == t.FUTURE:
        return _AUXILIARIES["werden"][person], "", verb.lemma
    if tree.modal is not None:
        return tree.modal.german[person], "", verb.lemma
    return verb.present[person], verb.particle, ""


def _middle_field(out: list[str], tree: t.Clause) -> None:
    """Pronouns, time, dative, accusative, nicht, manner, company, place, predicate."""
    arguments = [(tree.in_place(field), _case(field)) for field in ("object", "recipient")]
    for part, case in arguments:
        if isinstance(part, Pronoun):
            argument(out, part, case)
    _part(out, tree.in_place("time"))
    _part(out, tree.frequency)
    for part, case in reversed(arguments):
        if not isinstance(part, Pronoun):
            _part(out, part, case)
    # "not a car" is "kein Auto": the determiner of an indefinite object or predicate negates.
    if tree.negated and not any(
        isinstance(part, t.NounPhrase) and part.determiner.negative
        for part in (tree.object, tree.predicate)
    ):
        out.append("nicht")
    for adjunct in ("manner", "companion", "place"):
        _part(out, tree.in_place(adjunct))
    if tree.predicate is not None:
        _predicate(out, tree.predicate)


def _predicate(out: list[str], predicate: t.Predicate) -> None:
    if isinstance(predicate, t.Quality):
        out.append(" und ".join([adjective.german for adjective in predicate.adjectives]))
    elif isinstance(predicate, t.NounPhrase):
        noun_phrase(out, predicate, NOMINATIVE)
    elif isinstance(predicate, t.Comparison):
        out += ("so", predicate.adjective.german, "wie")
        noun_phrase(out, predicate.standard, NOMINATIVE)
    elif isinstance(predicate, t.Age):
        out += (CARDINALS[predicate.years][1], "Jahre alt")
    else:
        out += (CARDINALS[predicate.euros][1], "Euro")
