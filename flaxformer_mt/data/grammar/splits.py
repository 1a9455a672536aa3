"""Constructions, and which split shows a lemma in which: the held-out rule.

A construction is a lemma's immediate surroundings, as one string:

- noun: role, number, kind of determiner, as in "object.singular.possessive";
- adjective: declension, case and column ("mixed.accusative.neuter"), or "predicate" or
  "comparison" and the position;
- verb: tense and kind of clause ("perfect.because"), of a modal verb "past" or "present";
- adverb, time, date, hour: its pattern and the position ("date.front");
- number below 100: "count" and the role, or "age" and the position.

A position is "front" or the kind of clause, where all verb-final ones count as one, "final".

A lemma's constructions that show the same word form are a family. About a quarter of it (by a
stable digest, never all) is held out: three quarters of that for test, the rest for validation. So
training shows every word form and every construction, but not every combination.
"""

import collections
import functools
import hashlib
import itertools
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from flaxformer_mt.data.grammar import words as w
from flaxformer_mt.data.grammar.clauses import (
    KINDS,
    POSITIONS,
    VERB_SECOND,
    Combination,
)

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
HELD_OUT_SHARE = 0.25
TEST_SHARE_OF_HELD_OUT = 0.75

Use = tuple[Any, tuple[Combination]]  # a word, and what it shows where it is used

_ALL = tuple(category for category in w.CATEGORIES if category != "event")
# Every role of a noun phrase: its German case, and the categories of its nouns. "event" is genitive
# after "during": its phrase has no adjective, whose form would tell.
ROLES = {
    "subject": ("nominative", _ALL),
    "predicate": ("nominative", w.PROFESSIONS),
    "standard": ("nominative", w.PEOPLE),
    "object": ("accusative", _ALL),
    "for": ("accusative", (*w.PEOPLE, "dish", "drink")),
    "path": ("accusative", ("furniture", "place")),
    "recipient": ("dative", w.ANIMATE),
    "with": ("dative", (*w.ANIMATE, "dish", "drink")),
    "place": ("dative", ("place",)),
    "goal": ("dative", ("place",)),
    "event": ("dative", ("event",)),
    "possessor": ("genitive", w.PEOPLE),
}


def repeat(weights: str) -> list[str]:
    """Each name as often as its weight says: "2 when, 1 if"."""
    found = []
    for item in weights.split(", "):
        weight, name = item.split()
        found += [name] * int(weight)
    return found


# Tenses by span, in which a sentence's clauses agree.
_TENSES = {
    "anytime": repeat("26 present, 12 progressive, 24 past, 14 perfect, 10 future, 16 modal"),
    "past": repeat("5 past, 1 modal"),
    "now": repeat("6 present, 3 progressive, 2 perfect, 2 future, 3 modal"),
}
_CONDITIONS = repeat("3 present, 1 perfect, 1 modal")


def tenses(kind: str, span: str) -> list[str]:
    """Those of a kind of clause in a span, repeated by weight."""
    if kind == "if":
        return _CONDITIONS
    if kind in ("when", "before"):
        return ["past" if span == "past" else "present"]
    return _TENSES[span]


_DEFINITE = "16 the, 7 the+, 6 possessive, 3 possessive+, 3 this, 2 this+"
_INDEFINITE = "7 a, 4 bare+"
_QUANTIFIED = "2 every, 2 all+, 2 many+, 2 some+, 5 counted+"
_MASS = "4 the, 2 possessive, 1 this"
# Determiners of countable and of mass nouns, each as often as its weight says, by role or a variant
# of one ("negated-object"); "+" is plural.
_OPTIONS = {
    "subject": f"{_DEFINITE}, {_DEFINITE}, {_INDEFINITE}, {_QUANTIFIED}",
    "no-subject": "1 no, 1 no+",
    "predicate": "5 a, 1 possessive",
    "plural-predicate": "2 bare+, 1 possessive+",
    "negated-predicate": "1 not_a",
    "negated-plural-predicate": "1 not_bare+",
    "standard": _DEFINITE,
    "object": f"{_DEFINITE}, {_INDEFINITE}, {_QUANTIFIED}",
    "negated-object": f"{_DEFINITE}, 10 not_a, 7 not_bare+",
    "which-object": "2 which, 1 which+",
    "for": f"{_DEFINITE}, {_INDEFINITE}",
    "path": f"{_DEFINITE}, 5 a",
    "recipient": f"{_DEFINITE}, {_INDEFINITE}",
    "with": f"{_DEFINITE}, {_INDEFINITE}",
    "place": f"{_DEFINITE}, 5 a",
    "goal": f"{_DEFINITE}, 5 a",
    "event": "6 the, 2 possessive, 1 this",
    "possessor": "3 the, 1 the+, 2 possessive",
}
_MASS_OPTIONS = {
    "subject": f"6 bare, {_MASS}",
    "object": f"6 bare, {_MASS}",
    "with": f"12 bare, {_MASS}",
    "for": f"12 bare, {_MASS}",
    "no-subject": "1 no",
    "negated-object": f"6 not_bare, {_MASS}",
    "which-object": "1 which",
}

# Tenses of clauses by what the table of adverbs says of a time.
_FITTING = {
    "any": ("present", "progressive", "past", "future", "modal"),
    "now": ("present", "progressive"),
    "habit": ("present",),
    "past": ("past",),
    "perfect": ("perfect",),
    "future": ("future", "modal"),
}
_ADVERBS = {kind: words for kind, words in w.ADVERBS.items() if kind != "comment"} | {
    "date": w.ADVERBS["month"],
    "ordinal": w.ORDINALS,
    "clock": w.HOURS,
    "half": w.HOURS,
}


@functools.cache
def options(name: str, mass: bool) -> list[tuple[str, tuple[w.Determiner, ...]]]:
    """(number, determiners that share it) of a role or a variant, repeated by weight."""
    return [
        ("plural" if one.endswith("+") else "singular", w.DETERMINERS[one.removesuffix("+")])
        for one in repeat((_MASS_OPTIONS if mass else _OPTIONS)[name])
    ]


def role_of(name: str) -> str:
    """The role that an option name is a variant of."""
    return name.rpartition("-")[2]


class _Entry(NamedTuple):
    """A word in one construction, which shows one of its forms."""

    word: w.Word
    construction: str
    form: str
    kinds: Collection[str] = ()  # one of which it must suit, if there are any
    weight: int = 1


def _entries() -> Iterator[_Entry]:
    """Every reachable combination of the grammar, some of them repeatedly."""
    declensions: dict[str, set[tuple[str, str, str]]] = collections.defaultdict(set)
    for noun in w.NOUNS:
        mass = noun.category in w.MASS
        for name in _MASS_OPTIONS if mass else _OPTIONS:
            role = role_of(name)
            case, categories = ROLES[role]
            if noun.category not in categories:
                continue
            for number, group in set(options(name, mass)):
                for determiner in group:
                    form = f"{noun.forms[number][case]}.{number == 'plural'}"
                    construction = f"{role}.{number}.{determiner.kind}"
                    yield _Entry(noun, construction, form, [noun.category])
                    declension = determiner.paradigm, case, noun.columns[number]
                    if role != "event":
                        declensions[noun.category].add(declension)
    for adjective in w.ADJECTIVES:
        described = adjective.categories
        for paradigm, case, column in set().union(*(declensions[one] for one in described)):
            form = adjective.forms[paradigm][case][column]
            yield _Entry(adjective, f"{paradigm}.{case}.{column}", form, described)
        for position in POSITIONS:
            yield _Entry(adjective, f"predicate.{position}", "predicate", described)
            if "person" in described:  # people are compared, nothing else
                yield _Entry(adjective, f"comparison.{position}", "predicate", described)
    for verb, kind in itertools.product(w.VERBS, KINDS):
        # A relative clause may have its object already: what "transitive" verbs have.
        relative = verb.frame == "transitive" and kind == "relative"
        objects = itertools.chain(*verb.pools) if relative else ()
        kinds = verb.frame, *objects
        for tense in {*tenses(kind, "past"), *tenses(kind, "now")}:
            if _is_used(verb, tense, kind):
                # Order decides whether a particle is separate.
                form = f"{tense}.{kind in VERB_SECOND}"
                yield _Entry(verb, f"{tense}.{kind}", form, kinds)
    for modal, kind in itertools.product(w.MODALS, KINDS):
        if "modal" in tenses(kind, "now") and not (modal.past and kind == "if"):
            tense = "past" if modal.past else "present"
            yield _Entry(modal, f"{tense}.{kind}", tense, ["modal"])
    for pattern, adverbs in _ADVERBS.items():
        timeless = pattern in ("manner", "frequency")
        positions = POSITIONS if timeless else ("front", *POSITIONS)
        for adverb, position in itertools.product(adverbs, positions):
            form = pattern if adverbs is w.HOURS else adverb.german
            yield _Entry(adverb, f"{pattern}.{position}", form, _FITTING[adverb.tense])
    ages = [f"age.{position}" for position in POSITIONS]
    for word, place in itertools.product(w.NUMBERS[2:], ("count.subject", "count.object", *ages)):
        weight = 4 if word in w.HOURS else 1
        yield _Entry(word, place, place.partition(".")[0], weight=weight)


def _is_used(verb: w.Verb, tense: str, kind: str) -> bool:
    """Whether the English source would tell the tense apart there."""
    if verb.frame == "price":  # a state gives no time to be before
        return tense in ("present", "future") and kind != "before"
    if verb.frame in ("that", "whether") and kind not in VERB_SECOND:
        return False  # complements do not nest
    return not (
        (tense == "progressive" and verb.stative)
        or (tense == "past" and verb.past == verb.english)  # "they read" has two translations
        or (tense == "perfect" and verb.preterite_ich)
    )


@functools.cache
def _constructions() -> dict[str, dict[str, _Entry]]:
    """The entries by construction and lemma."""
    found: dict[str, dict[str, _Entry]] = collections.defaultdict(dict)
    for entry in _entries():
        found[entry.construction][entry.word.german] = entry
    return found


@functools.cache
def assignments() -> dict[Combination, Split]:
    """The split of every reachable combination; "train" is open to all splits."""
    families = collections.defaultdict(set)
    for entries in _constructions().values():
        for entry in entries.values():
            families[entry.word.german, entry.form].add(entry.construction)
    split: dict[Combination, Split] = {}
    for (lemma, form), family in families.items():
        held = min(int(len(family) * HELD_OUT_SHARE + _digest(lemma, form)), len(family) - 1)
        ranked = sorted(family, key=functools.partial(_digest, lemma))
        for construction in ranked[held:]:
            split[lemma, construction] = "train"
        for construction in ranked[:held]:
            test = _digest(lemma, construction, "test") < TEST_SHARE_OF_HELD_OUT
            split[lemma, construction] = "test" if test else "valid"
    return split


def _digest(*parts: str) -> float:
    """A number in [0, 1) from the text only."""
    raw = hashlib.blake2b("|".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") / 2**64


@functools.cache
def choices(split: Split, construction: str, *kinds: str) -> list[Use]:
    """What a split may use in a construction, as often as its weight says.

    `kinds` are what it must suit one of: categories of nouns for a noun or an adjective, a frame
    for a verb, or the category of the object if a relative clause has it already, "modal" for a
    modal verb, a tense for a time. Adverbs and numbers suit all.
    """
    found = []
    for lemma, entry in _constructions()[construction].items():
        combination = lemma, construction
        if assignments()[combination] in ("train", split):
            if not kinds or not set(kinds).isdisjoint(entry.kinds):
                found += [(entry.word, (combination,))] * entry.weight
    return found
