"""English realisation: subject-verb-object order, do-support, agreement, particles."""

from flaxformer_mt.data.grammar import trees as t
from flaxformer_mt.data.grammar.words import CARDINALS, CONJUNCTIONS, THIRD, Adverb, Pronoun

SUBJECT, OBJECT = range(2)
_BE = ("am", "are", "is", "are")
_BE_PAST = ("was", "were", "was", "were")
_DO = ("do", "do", "does", "do")
_HAVE = ("have", "have", "has", "have")


def sentence(tree: t.Sentence) -> str:
    """The English text of a sentence, cased and punctuated."""
    out: list[str] = []
    if tree.before is not None:
        clause(out, tree.before)
        out.append(",")
    clause(out, tree.main)
    if tree.after is not None:
        clause(out, tree.after)
    if tree.second is not None:
        out += (",", tree.conjunction)
        clause(out, tree.second)
    return t.punctuated(out, "?" if tree.main.kind == t.QUESTION else ".")


def clause(out: list[str], tree: t.Clause) -> None:
    if tree.kind in CONJUNCTIONS:
        out.append(tree.kind)
    elif tree.kind == t.RELATIVE:
        _relative_pronoun(out, tree)
    elif tree.asked:
        out += (tree.asked,) if tree.kind == t.QUESTION else (tree.asked, ",")
    elif tree.front and tree.front != "clause":
        part(out, getattr(tree, tree.front))
        if tree.kind != t.QUESTION:
            out.append(",")
    auxiliary, verb = _verb_group(tree)
    if tree.kind == t.QUESTION and tree.inverts:
        out.append(auxiliary)
        part(out, tree.subject, SUBJECT)
    else:
        if not isinstance(tree.subject, t.Relativizer):
            part(out, tree.subject, SUBJECT)
        if auxiliary:
            out.append(auxiliary)
    if tree.negated:
        out.append("not")
    part(out, tree.frequency)
    if verb:
        out.append(verb)
    target, particle = tree.in_place("object"), tree.verb.english_particle
    behind = tree.verb.movable and isinstance(target, Pronoun)
    if particle and not behind:
        out.append(particle)
    part(out, tree.in_place("recipient"))
    part(out, target)
    if behind:
        out.append(particle)
    part(out, tree.predicate)
    for adjunct in ("manner", "companion", "place", "time"):
        part(out, tree.in_place(adjunct))
    if tree.complement is not None:
        clause(out, tree.complement)


def part(
    out: list[str], tree: t.Argument | t.Adjunct | t.Predicate | None, position: int = OBJECT
) -> None:
    """Append an argument (as a subject or an object), an adjunct or a predicate."""
    if isinstance(tree, t.NounPhrase):
        noun_phrase(out, tree)
    elif isinstance(tree, Pronoun):
        out.append(tree.english[position])
    elif isinstance(tree, t.Relativizer):
        out.append(("who", "whom")[position] if tree.animate else "that")
    elif isinstance(tree, t.Coordination):
        noun_phrase(out, tree.first)
        out.append("and")
        noun_phrase(out, tree.second)
    elif isinstance(tree, t.PrepositionalPhrase):
        out.append(tree.preposition.english)
        part(out, tree.argument)
    elif isinstance(tree, (t.Time, Adverb)):
        out.append(tree.english)
    elif isinstance(tree, t.Quality):
        out.append(" and ".join([adjective.english for adjective in tree.adjectives]))
    elif isinstance(tree, t.Comparison):
        out += ("as", tree.adjective.english, "as")
        noun_phrase(out, tree.standard)
    elif isinstance(tree, t.Amount):
        out += (CARDINALS[tree.number][0], tree.unit[0])


def noun_phrase(out: list[str], tree: t.NounPhrase) -> None:
    """Append a noun phrase; "a" becomes "an" before a vowel sound."""
    word, noun = tree.determiner.english[tree.plural], tree.noun.english[tree.plural]
    following = noun if tree.adjective is None else tree.adjective.english
    vowel_sound = following[0] in "aeiou" and following != "university"
    if word == "a" and (vowel_sound or following == "honest"):
        word = "an"
    if word:
        out.append(word)
    if tree.number is not None:
        out.append(CARDINALS[tree.number][0])
    if tree.adjective is not None:
        out.append(following)
    out.append(noun)
    if tree.possessor is not None:
        out.append("of")
        noun_phrase(out, tree.possessor)
    if tree.relative is not None:
        clause(out, tree.relative)


def _relative_pronoun(out: list[str], tree: t.Clause) -> None:
    for argument in (tree.subject, tree.object, tree.recipient):
        if isinstance(argument, t.Relativizer):
            return part(out, argument, SUBJECT if argument is tree.subject else OBJECT)
    part(out, tree.companion)


def _verb_group(tree: t.Clause) -> tuple[str, str]:
    """(auxiliary, verb): "not" follows the auxiliary, a question inverts it."""
    person, tense, modal = tree.subject.person, tree.tense, tree.modal
    base, third, ing, past, participle = tree.verb.english
    support = tree.negated or (tree.kind == t.QUESTION and tree.inverts)
    if modal is not None:
        if modal.english:
            return modal.english, base
        if support:
            return ("did" if modal.past else _DO[person]), f"{modal.base} {base}"
        return "", f"{modal.finite[person == THIRD]} {base}"
    if tense == t.PROGRESSIVE:
        return _BE[person], ing
    if tense == t.PERFECT:
        return _HAVE[person], participle
    if tense == t.FUTURE:
        return "will", base
    if base == "be":
        return (_BE_PAST if tense == t.PAST else _BE)[person], ""
    if tense == t.PAST:
        return ("did", base) if support else ("", past)
    if support:
        return _DO[person], base
    return "", (third if person == THIRD else base)
