"""German realisation: agreement and case, verb-second and verb-final order, negation."""

from flaxformer_mt.data.grammar import trees as t, words as w

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
    finite, particle, nonfinite = _verb_forms(tree)
    if tree.kind in t.VERB_SECOND:
        # One constituent before the finite verb; none in a yes-no question.
        if not tree.inverts:
            part(out, tree.subject, w.NOMINATIVE)
        elif tree.asked:
            out.append(_ASKED[tree.asked])
        elif tree.front and tree.front != "clause":
            part(out, getattr(tree, tree.front), _case(tree.front))
        out.append(finite)
        if tree.inverts:
            part(out, tree.subject, w.NOMINATIVE)
        _middle_field(out, tree)
        out += [word for word in (particle, nonfinite) if word]
    else:
        if tree.kind == t.RELATIVE:
            _relative_pronoun(out, tree)
        else:
            past = tree.kind == t.WHEN and tree.tense == t.PAST
            out.append("als" if past else w.CONJUNCTIONS[tree.kind])
        if not isinstance(tree.subject, t.Relativizer):
            part(out, tree.subject, w.NOMINATIVE)
        _middle_field(out, tree)
        out += [word for word in (nonfinite, particle + finite) if word]
    if tree.complement is not None:
        out.append(",")
        clause(out, tree.complement)


def part(
    out: list[str],
    tree: t.Argument | t.Adjunct | t.Predicate | None,
    case: int = w.ACCUSATIVE,
) -> None:
    """Append an argument in a case, an adjunct or a predicate; "in dem" becomes "im"."""
    if isinstance(tree, t.NounPhrase):
        noun_phrase(out, tree, case)
    elif isinstance(tree, w.Pronoun):
        out.append(tree.german[case])
    elif isinstance(tree, t.Relativizer):
        out.append(w.RELATIVE_PRONOUNS[case][tree.column])
    elif isinstance(tree, t.Coordination):
        noun_phrase(out, tree.first, case)
        out.append("und")
        noun_phrase(out, tree.second, case)
    elif isinstance(tree, t.PrepositionalPhrase):
        preposition, start = tree.preposition, len(out)
        out.append(preposition.german)
        part(out, tree.argument, preposition.case)
        if isinstance(tree.argument, t.NounPhrase) and tree.argument.determiner is w.THE:
            contracted = _CONTRACTIONS.get((preposition.german, out[start + 1]))
            if contracted is not None:
                out[start : start + 2] = [contracted]
    elif isinstance(tree, (t.Time, w.Adverb)):
        out.append(tree.german)
    elif isinstance(tree, t.Quality):
        out.append(" und ".join([adjective.german for adjective in tree.adjectives]))
    elif isinstance(tree, t.Comparison):
        out += ("so", tree.adjective.german, "wie")
        noun_phrase(out, tree.standard, w.NOMINATIVE)
    elif isinstance(tree, t.Amount):
        out += (w.CARDINALS[tree.number][1], tree.unit[1])


def noun_phrase(out: list[str], tree: t.NounPhrase, case: int) -> None:
    """Append a noun phrase: determiner and adjective agree in gender, number and case."""
    determiner, column = tree.determiner, tree.column
    if word := determiner.german[case][column]:
        out.append(word)
    if tree.number is not None:
        out.append(w.CARDINALS[tree.number][1])
    if tree.adjective is not None:
        out.append(tree.adjective.forms[determiner.paradigm][case][column])
    out.append(tree.noun.german[tree.plural][case])
    if tree.possessor is not None:
        noun_phrase(out, tree.possessor, w.GENITIVE)
    if tree.relative is not None:
        out.append(",")
        clause(out, tree.relative)
        out.append(",")


def _case(field: str) -> int:
    return w.DATIVE if field == "recipient" else w.ACCUSATIVE


def _relative_pronoun(out: list[str], tree: t.Clause) -> None:
    """It stands in the case of the argument that it stands for."""
    arguments = {w.NOMINATIVE: tree.subject, w.ACCUSATIVE: tree.object, w.DATIVE: tree.recipient}
    for case, argument in arguments.items():
        if isinstance(argument, t.Relativizer):
            return part(out, argument, case)
    part(out, tree.companion)


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
    for argument, case in arguments:
        if isinstance(argument, w.Pronoun):
            part(out, argument, case)
    part(out, tree.in_place("time"))
    part(out, tree.frequency)
    for argument, case in reversed(arguments):
        if not isinstance(argument, w.Pronoun):
            part(out, argument, case)
    # "not a car" is "kein Auto": the determiner of an indefinite object or predicate negates.
    if tree.negated and not any(
        isinstance(phrase, t.NounPhrase) and phrase.determiner.negative
        for phrase in (tree.object, tree.predicate)
    ):
        out.append("nicht")
    for adjunct in ("manner", "companion", "place"):
        part(out, tree.in_place(adjunct))
    part(out, tree.predicate, w.NOMINATIVE)
