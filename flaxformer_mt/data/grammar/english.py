"""English realisation: subject-verb-object order, do-support, agreement, particles."""

from __future__ import annotations

from flaxformer_mt.data.grammar.determiners import CONJUNCTIONS, THIRD, Pronoun
from flaxformer_mt.data.grammar.numbers import CARDINALS
from flaxformer_mt.data.grammar.syntax import (
    FUTURE,
    MODAL,
    PAST,
    PERFECT,
    PROGRESSIVE,
    QUESTION,
    RELATIVE,
    Age,
    Argument,
    Clause,
    Comparison,
    NounPhrase,
    PrepositionalPhrase,
    Price,
    Quality,
    Relativizer,
    Sentence,
    Time,
)
from flaxformer_mt.data.grammar.text import punctuate

SUBJECT, OBJECT = range(2)
_BE = ("am", "are", "is", "are")
_BE_PAST = ("was", "were", "was", "were")
_DO = ("do", "do", "does", "do")
_HAVE = ("have", "have", "has", "have")


def sentence(tree: Sentence) -> str:
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
    return punctuate(out, "?" if tree.main.kind == QUESTION else ".")


def clause(out: list[str], tree: Clause) -> None:
    """Append a clause's tokens."""
    if tree.kind in CONJUNCTIONS:
        out.append(CONJUNCTIONS[tree.kind][0])
    elif tree.kind == RELATIVE:
        _relativized(out, tree)
    elif tree.front or tree.asked:
        _front(out, tree)
    auxiliary, verb = _verb_group(tree)
    if tree.kind == QUESTION and tree.inverts:
        out.append(auxiliary)
        argument(out, tree.subject, SUBJECT)
    else:
        if not isinstance(tree.subject, Relativizer):
            argument(out, tree.subject, SUBJECT)
        if auxiliary:
            out.append(auxiliary)
    if tree.negated:
        out.append("not")
    if tree.frequency is not None:
        out.append(tree.frequency.english)
    if verb:
        out.append(verb)
    _objects(out, tree)
    _adjuncts(out, tree)
    if tree.complement is not None:
        clause(out, tree.complement)


def _relativized(out: list[str], tree: Clause) -> None:
    if isinstance(tree.subject, Relativizer):
        argument(out, tree.subject, SUBJECT)
    elif isinstance(tree.object, Relativizer):
        argument(out, tree.object, OBJECT)
    elif isinstance(tree.recipient, Relativizer):
        argument(out, tree.recipient, OBJECT)
    else:
        assert tree.companion is not None
        prepositional(out, tree.companion)


def _front(out: list[str], tree: Clause) -> None:
    """What opens the clause: a question word, or a fronted constituent with its comma."""
    if tree.asked:
        out.append(tree.asked)
    elif tree.front == "object":
        assert tree.object is not None
        argument(out, tree.object, OBJECT)
    elif tree.front == "recipient":
        assert tree.recipient is not None
        argument(out, tree.recipient, OBJECT)
    elif tree.front == "time":
        _time(out, tree.time)
    elif tree.front == "place":
        assert tree.place is not None
        prepositional(out, tree.place)
    elif tree.front == "comment":
        assert tree.comment is not None
        out.append(tree.comment.english)
    if tree.kind != QUESTION and tree.front != "clause":
        out.append(",")


def _verb_group(tree: Clause) -> tuple[str, str]:
    """(auxiliary, verb): "not" follows the auxiliary, a question inverts it; it is "do" at need."""
    person = tree.subject.person
    base, third, ing, past, participle = tree.verb.english
    tense = tree.tense
    if tense == PROGRESSIVE:
        return _BE[person], ing
    if tense == PERFECT:
        return _HAVE[person], participle
    if tense == FUTURE:
        return "will", base
    if base == "be" and tense != MODAL:
        return (_BE_PAST if tense == PAST else _BE)[person], ""
    support = tree.negated or (tree.kind == QUESTION and tree.inverts)
    if tense == MODAL:
        modal = tree.modal
        assert modal is not None
        if modal.english:
            return modal.english, base
        if support:
            return ("did" if modal.past else _DO[person]), f"{modal.base} {base}"
        return "", f"{modal.finite[person == THIRD]} {base}"
    if tense == PAST:
        return ("did", base) if support else ("", past)
    if support:
        return _DO[person], base
    return "", (third if person == THIRD else base)


def _objects(out: list[str], tree: Clause) -> None:
    """Recipient before object; a movable particle stands behind a pronoun (picks him up)."""
    particle = tree.verb.english_particle
    behind = tree.verb.movable and isinstance(tree.object, Pronoun) and tree.front != "object"
    if particle and not behind:
        out.append(particle)
    if (
        tree.recipient is not None
        and tree.front != "recipient"
        and not isinstance(tree.recipient, Relativizer)
    ):
        argument(out, tree.recipient, OBJECT)
    if (
        tree.object is not None
        and tree.front != "object"
        and not isinstance(tree.object, Relativizer)
    ):
        argument(out, tree.object, OBJECT)
    if behind:
        out.append(particle)
    if tree.predicate is not None:
        _predicate(out, tree.predicate)


def _adjuncts(out: list[str], tree: Clause) -> None:
    if tree.manner is not None:
        out.append(tree.manner.english)
    if tree.companion is not None and not isinstance(tree.companion.argument, Relativizer):
        prepositional(out, tree.companion)
    if tree.place is not None and tree.front != "place":
        prepositional(out, tree.place)
    if tree.time is not None and tree.front != "time":
        _time(out, tree.time)


def _time(out: list[str], time: Time | PrepositionalPhrase | None) -> None:
    if isinstance(time, Time):
        out.append(time.english)
    elif time is not None:
        prepositional(out, time)


def _predicate(out: list[str], predicate: NounPhrase | Quality | Comparison | Age | Price) -> None:
    if isinstance(predicate, Quality):
        out.append(" and ".join([adjective.english for adjective in predicate.adjectives]))
    elif isinstance(predicate, NounPhrase):
        noun_phrase(out, predicate)
    elif isinstance(predicate, Comparison):
        out += ("as", predicate.adjective.english, "as")
        noun_phrase(out, predicate.standard)
    elif isinstance(predicate, Age):
        out += (CARDINALS[predicate.years][0], "years old")
    else:
        out += (CARDINALS[predicate.euros][0], "euros")


def argument(out: list[str], tree: Argument, position: int) -> None:
    """Append an argument as a subject or an object."""
    if isinstance(tree, NounPhrase):
        noun_phrase(out, tree)
    elif isinstance(tree, Pronoun):
        out.append(tree.english[position])
    elif isinstance(tree, Relativizer):
        out.append(("who", "whom")[position] if tree.animate else "that")
    else:
        noun_phrase(out, tree.first)
        out.append("and")
        noun_phrase(out, tree.second)


def noun_phrase(out: list[str], tree: NounPhrase) -> None:
    """Append a noun phrase; "a" becomes "an" before a vowel sound."""
    word = tree.determiner.english[tree.plural]
    following = (
        tree.adjective.english if tree.adjective is not None else tree.noun.english[tree.plural]
    )
    if word == "a" and _vowel_sound(following):
        word = "an"
    if word:
        out.append(word)
    if tree.number is not None:
        out.append(CARDINALS[tree.number][0])
    if tree.adjective is not None:
        out.append(following)
    out.append(tree.noun.english[tree.plural])
    if tree.possessor is not None:
        out.append("of")
        noun_phrase(out, tree.possessor)
    if tree.relative is not None:
        clause(out, tree.relative)


def _vowel_sound(word: str) -> bool:
    return word == "honest" or (word[0] in "aeiou" and word != "university")


def prepositional(out: list[str], tree: PrepositionalPhrase) -> None:
    """Append a prepositional phrase."""
    out.append(tree.preposition.english)
    argument(out, tree.argument, OBJECT)
