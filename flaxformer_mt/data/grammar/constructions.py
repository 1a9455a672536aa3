"""Constructions: where a lemma may stand, and the (lemma, construction) combinations of a sentence.

A construction is a lemma's immediate surroundings, as one string:

- noun: role, number, kind of determiner, as in "object.singular.possessive";
- adjective: declension, case and column ("mixed.accusative.neuter"), or "predicate" or
  "comparison" and the position;
- verb: tense and kind of clause ("perfect.because"), of a modal verb "past" or "present";
- adverb, time, date, hour: its pattern and the position ("date.front");
- number below 100: "count" and the role, or "age" and the position.

A position is "front" or the kind of clause, where all verb-final ones count as one, "final".
"""

from __future__ import annotations

from collections.abc import Iterator

from flaxformer_mt.data.grammar import determiners as d, syntax
from flaxformer_mt.data.grammar.adjectives import ADJECTIVES, PARADIGM_NAMES, Adjective
from flaxformer_mt.data.grammar.nouns import (
    ACCUSATIVE,
    DATIVE,
    GENITIVE,
    NOMINATIVE,
    NOUNS,
    PLURAL,
    Noun,
)
from flaxformer_mt.data.grammar.numbers import CARDINALS
from flaxformer_mt.data.grammar.syntax import (
    Age,
    Clause,
    Comparison,
    Coordination,
    NounPhrase,
    Quality,
    Sentence,
    Time,
)
from flaxformer_mt.data.grammar.verbs import Modal, Verb

Combination = tuple[str, str]
"""(lemma, construction); a lemma is its German citation form."""

CASE_NAMES = ("nominative", "accusative", "dative", "genitive")
COLUMN_NAMES = ("masculine", "feminine", "neuter", "plural")

ROLE_CASES: dict[str, int] = {
    "subject": NOMINATIVE,
    "predicate": NOMINATIVE,
    "standard": NOMINATIVE,
    "object": ACCUSATIVE,
    "for": ACCUSATIVE,
    "path": ACCUSATIVE,
    "recipient": DATIVE,
    "with": DATIVE,
    "place": DATIVE,
    "goal": DATIVE,
    "event": DATIVE,
    "possessor": GENITIVE,
}
"""Every role of a noun phrase and its German case.

"event" is genitive after "during"; its phrase has no adjective, whose form would tell."""

_PERSON_ROLES = ("subject", "standard", "object", "recipient", "with", "for", "possessor")
CATEGORY_ROLES: dict[str, tuple[str, ...]] = {
    "person": _PERSON_ROLES,
    "profession_m": ("predicate", *_PERSON_ROLES),
    "profession_f": ("predicate", *_PERSON_ROLES),
    "animal": ("subject", "object", "recipient", "with"),
    "thing": ("subject", "object"),
    "furniture": ("subject", "object", "path"),
    "clothing": ("subject", "object"),
    "vehicle": ("subject", "object"),
    "text": ("subject", "object"),
    "opening": ("subject", "object"),
    "food": ("subject", "object"),
    "dish": ("subject", "object", "with", "for"),
    "drink": ("subject", "object", "with", "for"),
    "place": ("subject", "object", "place", "goal", "path"),
    "event": ("event",),
}

Option = tuple[int, bool, tuple[d.Determiner, ...]]
"""(weight, plural, determiners that share it)."""

_POSSESSIVE = d.POSSESSIVES
_DEFINITE: list[Option] = [
    (16, False, (d.THE,)),
    (7, True, (d.THE,)),
    (6, False, _POSSESSIVE),
    (3, True, _POSSESSIVE),
    (3, False, (d.THIS,)),
    (2, True, (d.THIS,)),
]
_INDEFINITE: list[Option] = [(7, False, (d.A,)), (4, True, (d.BARE,))]
_QUANTIFIED: list[Option] = [
    (2, False, (d.EVERY,)),
    (2, True, (d.ALL,)),
    (2, True, (d.MANY,)),
    (2, True, (d.SOME,)),
    (5, True, (d.COUNTED,)),
]
_NO: list[Option] = [(1, False, (d.NO,)), (1, True, (d.NO,))]
_MASS: list[Option] = [
    (6, False, (d.BARE,)),
    (4, False, (d.THE,)),
    (2, False, _POSSESSIVE),
    (1, False, (d.THIS,)),
]

_MASS_COMPANY: list[Option] = [(12, False, (d.BARE,)), *_MASS[1:]]

COUNT_OPTIONS: dict[str, list[Option]] = {
    "subject": [*_DEFINITE, *_DEFINITE, *_INDEFINITE, *_QUANTIFIED],
    "no-subject": _NO,
    "predicate": [(5, False, (d.A,)), (1, False, _POSSESSIVE)],
    "plural-predicate": [(2, True, (d.BARE,)), (1, True, _POSSESSIVE)],
    "negated-predicate": [(1, False, (d.NOT_A,))],
    "negated-plural-predicate": [(1, True, (d.NOT_BARE,))],
    "standard": _DEFINITE,
    "object": [*_DEFINITE, *_INDEFINITE, *_QUANTIFIED],
    "negated-object": [*_DEFINITE, (10, False, (d.NOT_A,)), (7, True, (d.NOT_BARE,))],
    "which-object": [(2, False, (d.WHICH,)), (1, True, (d.WHICH,))],
    "for": [*_DEFINITE, *_INDEFINITE],
    "path": [*_DEFINITE, (5, False, (d.A,))],
    "recipient": [*_DEFINITE, *_INDEFINITE],
    "with": [*_DEFINITE, *_INDEFINITE],
    "place": [*_DEFINITE, (5, False, (d.A,))],
    "goal": [*_DEFINITE, (5, False, (d.A,))],
    "event": [(6, False, (d.THE,)), (2, False, _POSSESSIVE), (1, False, (d.THIS,))],
    "possessor": [(3, False, (d.THE,)), (1, True, (d.THE,)), (2, False, _POSSESSIVE)],
}
"""Number and determiner of countable nouns, by role or a variant of one ("negated-object")."""

MASS_OPTIONS: dict[str, list[Option]] = {
    "subject": _MASS,
    "object": _MASS,
    "with": _MASS_COMPANY,
    "for": _MASS_COMPANY,
    "no-subject": [(1, False, (d.NO,))],
    "negated-object": [(6, False, (d.NOT_BARE,)), *_MASS[1:]],
    "which-object": [(1, False, (d.WHICH,))],
}
"""The same for mass nouns."""

NUMBERED_ROLES = ("subject", "object")

KIND_TENSES: dict[str, tuple[str, ...]] = dict.fromkeys(syntax.KINDS, syntax.TENSES) | {
    syntax.IF: (syntax.PRESENT, syntax.PERFECT, syntax.MODAL),
    syntax.WHEN: (syntax.PRESENT, syntax.PAST),
    syntax.BEFORE: (syntax.PRESENT, syntax.PAST),
}
"""Tenses of each kind of clause."""

PREDICATE_KINDS = tuple(kind for kind in syntax.KINDS if kind != syntax.BEFORE)
"""Where "be" and "cost" stand: a state gives no time to be before."""


def noun_construction(role: str, plural: bool, kind: str) -> str:
    return f"{role}.{'plural' if plural else 'singular'}.{kind}"


def adjective_construction(paradigm: int, case: int, column: int) -> str:
    return f"{PARADIGM_NAMES[paradigm]}.{CASE_NAMES[case]}.{COLUMN_NAMES[column]}"


def clause_construction(pattern: str, kind: str) -> str:
    return f"{pattern}.{kind}"


def number_lemma(number: int) -> str:
    return CARDINALS[number][1]


def verb_tenses(verb: Verb) -> tuple[str, ...]:
    """The tenses a verb is used in: each must be told from every other in the English source."""
    if verb.frame == "price":
        return syntax.PRESENT, syntax.FUTURE
    unused = set()
    if verb.stative:
        unused.add(syntax.PROGRESSIVE)
    if not verb.past_is_distinct:
        unused.add(syntax.PAST)
    if verb.preterite is not None:
        unused.add(syntax.PERFECT)
    return tuple(tense for tense in syntax.TENSES if tense not in unused)


def verb_constructions(verb: Verb) -> Iterator[tuple[str, str, str]]:
    """(tense, kind, word forms shown): order decides whether a particle is separate."""
    kinds: tuple[str, ...] = syntax.KINDS
    if verb.frame in ("that", "whether"):
        kinds = syntax.VERB_SECOND  # complements do not nest
    elif verb.frame in ("copula", "price"):
        kinds = PREDICATE_KINDS
    for kind in kinds:
        for tense in KIND_TENSES[kind]:
            if tense in verb_tenses(verb):
                yield tense, kind, f"{tense}.{kind in syntax.VERB_SECOND}"


def role_of(name: str) -> str:
    """The role that an option name is a variant of."""
    return name.rpartition("-")[2]


def _determiners(noun: Noun, role: str) -> Iterator[tuple[bool, d.Determiner]]:
    """(plural, determiner) of every noun phrase that a noun heads in a role."""
    for name, options in (MASS_OPTIONS if noun.mass else COUNT_OPTIONS).items():
        if role_of(name) == role:
            for _, plural, group in options:
                for determiner in group:
                    yield plural, determiner


def noun_constructions(noun: Noun) -> Iterator[tuple[str, bool, str, str]]:
    """(role, plural, determiner kind, word form shown)."""
    for role in CATEGORY_ROLES[noun.category]:
        kinds = {(plural, determiner.kind) for plural, determiner in _determiners(noun, role)}
        for plural, kind in sorted(kinds):
            form = noun.german[plural][ROLE_CASES[role]]
            yield role, plural, kind, f"{form}.{plural}"


def adjective_declensions(adjective: Adjective) -> Iterator[tuple[int, int, int, str]]:
    """(declension, case, column, word form shown): those that its noun categories reach."""
    reached = {
        (determiner.paradigm, ROLE_CASES[role], PLURAL if plural else noun.gender)
        for category in adjective.categories
        for noun in NOUNS[category]
        for role in CATEGORY_ROLES[category]
        if role != "event"
        for plural, determiner in _determiners(noun, role)
    }
    for paradigm, case, column in sorted(reached):
        yield paradigm, case, column, adjective.forms[paradigm][case][column]


def comparable(adjective: Adjective) -> bool:
    """Whether "as old as" is said with it: people are compared, nothing else."""
    return "person" in adjective.categories


def modal_constructions(modal: Modal) -> Iterator[tuple[str, str, str]]:
    """(construction, kind of clause, word form shown)."""
    tense = "past" if modal.past else "present"
    for kind in syntax.KINDS:
        if syntax.MODAL in KIND_TENSES[kind] and not (modal.past and kind == syntax.IF):
            yield clause_construction(tense, kind), kind, tense


def combinations(sentence: Sentence) -> set[Combination]:
    """Every (lemma, construction) of a sentence, read off its tree."""
    found: set[Combination] = set()
    for clause in (sentence.before, sentence.main, sentence.after, sentence.second):
        if clause is not None:
            _clause(found, clause)
    return found


def _clause(found: set[Combination], clause: Clause) -> None:
    kind, position = clause.kind, syntax.POSITION[clause.kind]
    found.add((clause.verb.lemma, clause_construction(clause.tense, kind)))
    if clause.modal is not None:
        tense = "past" if clause.modal.past else "present"
        found.add((clause.modal.lemma, clause_construction(tense, kind)))
    for adverb, pattern in ((clause.manner, "manner"), (clause.frequency, "frequency")):
        if adverb is not None:
            found.add((adverb.lemma, clause_construction(pattern, position)))
    if isinstance(clause.time, Time):
        place = "front" if clause.front == "time" else position
        for lemma, pattern in clause.time.parts:
            found.add((lemma, clause_construction(pattern, place)))
    elif clause.time is not None:
        _argument(found, clause.time.argument)
    for phrase in (clause.companion, clause.place):
        if phrase is not None:
            _argument(found, phrase.argument)
    for argument in (clause.subject, clause.object, clause.recipient):
        if argument is not None:
            _argument(found, argument)
    _predicate(found, clause)
    if clause.complement is not None:
        _clause(found, clause.complement)


def _predicate(found: set[Combination], clause: Clause) -> None:
    predicate, position = clause.predicate, syntax.POSITION[clause.kind]
    if isinstance(predicate, NounPhrase):
        _argument(found, predicate)
    elif isinstance(predicate, Quality):
        for adjective in predicate.adjectives:
            found.add((adjective.lemma, clause_construction("predicate", position)))
    elif isinstance(predicate, Comparison):
        found.add((predicate.adjective.lemma, clause_construction("comparison", position)))
        _argument(found, predicate.standard)
    elif isinstance(predicate, Age):
        found.add((number_lemma(predicate.years), clause_construction("age", position)))


def _argument(found: set[Combination], tree: syntax.Argument) -> None:
    if isinstance(tree, Coordination):
        _argument(found, tree.first)
        _argument(found, tree.second)
    elif isinstance(tree, NounPhrase):
        found.add(
            (tree.noun.lemma, noun_construction(tree.role, tree.plural, tree.determiner.kind))
        )
        if tree.adjective is not None:
            declension = adjective_construction(
                tree.determiner.paradigm, ROLE_CASES[tree.role], tree.column
            )
            found.add((tree.adjective.lemma, declension))
        if tree.number is not None and tree.number < 100:
            found.add((number_lemma(tree.number), f"count.{tree.role}"))
        if tree.possessor is not None:
            _argument(found, tree.possessor)
        if tree.relative is not None:
            _clause(found, tree.relative)


assert {category for adjective in ADJECTIVES for category in adjective.categories} <= set(
    CATEGORY_ROLES
)
