"""What each split may put where: the lexicon filtered by the held-out rule, as look-up tables."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from flaxformer_mt.data.grammar import constructions as c, syntax, times
from flaxformer_mt.data.grammar.adjectives import ADJECTIVES, Adjective
from flaxformer_mt.data.grammar.holdout import Split, assign
from flaxformer_mt.data.grammar.nouns import NOUNS, PEOPLE, Noun
from flaxformer_mt.data.grammar.times import Adverb
from flaxformer_mt.data.grammar.verbs import MODALS, VERBS, Modal, Verb

TIME_POSITIONS = ("front", *syntax.POSITIONS)

_TIME_CLASSES: dict[str, tuple[str, ...]] = {
    syntax.PRESENT: (times.ANY, times.NOW, times.HABIT),
    syntax.PROGRESSIVE: (times.ANY, times.NOW),
    syntax.PAST: (times.ANY, times.PAST),
    syntax.PERFECT: (times.PERFECT,),
    syntax.FUTURE: (times.ANY, times.FUTURE),
    syntax.MODAL: (times.ANY, times.FUTURE),
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A lexical entry in one construction, and the tables' key it is found under."""

    table: str
    key: tuple[Any, ...]
    value: Any
    combination: c.Combination
    form: str


def _entries() -> Iterator[Entry]:
    """Every reachable combination of the grammar."""
    for category in NOUNS:
        for noun in NOUNS[category]:
            for role, plural, kind, form in c.noun_constructions(noun):
                name = c.noun_construction(role, plural, kind)
                yield Entry("nouns", (role, plural, kind), noun, (noun.lemma, name), form)
    for adjective in ADJECTIVES:
        for paradigm, case, column, form in c.adjective_declensions(adjective):
            name = c.adjective_construction(paradigm, case, column)
            yield Entry(
                "adjectives", (paradigm, case, column), adjective, (adjective.lemma, name), form
            )
        patterns = ("predicate", "comparison") if c.comparable(adjective) else ("predicate",)
        for position in syntax.POSITIONS:
            for pattern in patterns:
                name = c.clause_construction(pattern, position)
                yield Entry(
                    "predicates",
                    (pattern, position),
                    adjective,
                    (adjective.lemma, name),
                    "predicate",
                )
    for frame in VERBS:
        for verb in VERBS[frame]:
            for tense, kind, form in c.verb_constructions(verb):
                name = c.clause_construction(tense, kind)
                # The copula is grammar more than lexicon: no combination of it is held out.
                form = name if frame == "copula" else form
                yield Entry("verbs", (frame, tense, kind), verb, (verb.lemma, name), form)
    for modal in MODALS:
        for name, kind, form in c.modal_constructions(modal):
            yield Entry("modals", (kind, modal.past), modal, (modal.lemma, name), form)
    yield from _adverbials()
    for number in range(2, 100):
        lemma = c.number_lemma(number)
        for role in c.NUMBERED_ROLES:
            yield Entry("numbers", ("count", role), number, (lemma, f"count.{role}"), "count")
        for position in syntax.POSITIONS:
            name = c.clause_construction("age", position)
            yield Entry("numbers", ("age", position), number, (lemma, name), "age")


def _adverbials() -> Iterator[Entry]:
    for pattern, adverbs in (("manner", times.MANNERS), ("frequency", times.FREQUENCIES)):
        for adverb in adverbs:
            for position in syntax.POSITIONS:
                name = c.clause_construction(pattern, position)
                yield Entry(
                    "adverbs", (pattern, position), adverb, (adverb.lemma, name), adverb.german
                )
    patterns: tuple[tuple[tuple[Adverb, ...], tuple[str, ...]], ...] = (
        (times.SIMPLE_TIMES, ("time",)),
        (times.DAYS, ("day",)),
        (times.MONTHS, ("month", "date")),
        (times.ORDINALS, ("ordinal",)),
    )
    for adverbs, names in patterns:
        for adverb in adverbs:
            for pattern in names:
                for position in TIME_POSITIONS:
                    name = c.clause_construction(pattern, position)
                    yield Entry(
                        "times", (pattern, position), adverb, (adverb.lemma, name), adverb.german
                    )
    for hour in times.HOURS:
        for pattern in ("clock", "half"):
            for position in TIME_POSITIONS:
                name = c.clause_construction(pattern, position)
                yield Entry(
                    "times", (pattern, position), hour, (c.number_lemma(hour), name), pattern
                )


@functools.cache
def assignments() -> dict[c.Combination, Split]:
    """The split of every reachable combination; "train" is open to all splits."""
    by_lemma: dict[str, dict[str, str]] = {}
    for entry in _entries():
        lemma, construction = entry.combination
        by_lemma.setdefault(lemma, {})[construction] = entry.form
    return {
        (lemma, construction): split
        for lemma, forms in by_lemma.items()
        for construction, split in assign(lemma, forms.items()).items()
    }


@functools.cache
def held_out(split: Split) -> frozenset[c.Combination]:
    """The combinations that only `split` shows (none for "train")."""
    if split == "train":
        return frozenset()
    return frozenset(combination for combination, owner in assignments().items() if owner == split)


@dataclasses.dataclass(frozen=True)
class Inventory:
    """The entries a split may use, by construction; an absent key means that there is none."""

    nouns: dict[tuple[str, bool, str], dict[tuple[str, ...], tuple[Noun, ...]]]
    adjectives: dict[tuple[int, int, int], dict[str, tuple[Adjective, ...]]]
    predicates: dict[tuple[str, str], dict[str, tuple[Adjective, ...]]]
    verbs: dict[tuple[str, str, str], tuple[Verb, ...]]
    governors: dict[tuple[str, str], tuple[Verb, ...]]
    modals: dict[tuple[str, bool], tuple[Modal, ...]]
    adverbs: dict[tuple[str, str], tuple[Adverb, ...]]
    times: dict[tuple[str, str, str], tuple[Any, ...]]
    numbers: dict[tuple[str, str], tuple[int, ...]]


def _pools() -> set[tuple[str, ...]]:
    """Every group of categories that something draws nouns from."""
    pools = {pool for frame in VERBS.values() for verb in frame for pool in verb.objects}
    return (
        pools
        | {(category,) for category in NOUNS}
        | {PEOPLE, (*PEOPLE, "animal"), ("dish", "drink")}
    )


@functools.cache
def inventory(split: Split) -> Inventory:
    """The tables of a split, built once a process."""
    allowed: dict[str, dict[tuple[Any, ...], list[Any]]] = {}
    owners = assignments()
    for entry in _entries():
        if owners[entry.combination] in ("train", split):
            allowed.setdefault(entry.table, {}).setdefault(entry.key, []).append(entry.value)
    categories = tuple(NOUNS)
    governors: dict[tuple[str, str], list[Verb]] = {}
    for (frame, tense, kind), verbs in allowed["verbs"].items():
        if frame == "transitive" and kind == syntax.RELATIVE:
            for verb in verbs:
                for category in {name for pool in verb.objects for name in pool}:
                    governors.setdefault((tense, category), []).append(verb)
    return Inventory(
        nouns={
            key: {
                pool: chosen
                for pool in _pools()
                if (chosen := tuple(n for n in nouns if n.category in pool))
            }
            for key, nouns in allowed["nouns"].items()
        },
        adjectives={
            key: _by_category(found, categories) for key, found in allowed["adjectives"].items()
        },
        predicates={
            key: _by_category(found, categories) for key, found in allowed["predicates"].items()
        },
        verbs={(key[0], key[1], key[2]): tuple(verbs) for key, verbs in allowed["verbs"].items()},
        governors={key: tuple(verbs) for key, verbs in governors.items()},
        modals={(key[0], key[1]): tuple(modals) for key, modals in allowed["modals"].items()},
        adverbs={(key[0], key[1]): tuple(adverbs) for key, adverbs in allowed["adverbs"].items()},
        times={
            (pattern, position, tense): chosen
            for (pattern, position), found in allowed["times"].items()
            for tense, classes in _TIME_CLASSES.items()
            if (chosen := tuple(t for t in found if _fits(t, classes)))
        },
        numbers={
            (key[0], key[1]): _weighted(numbers) for key, numbers in allowed["numbers"].items()
        },
    )


def _by_category(
    found: list[Adjective], categories: tuple[str, ...]
) -> dict[str, tuple[Adjective, ...]]:
    return {
        name: chosen
        for name in categories
        if (chosen := tuple(a for a in found if name in a.categories))
    }


def _fits(time: Adverb | int, classes: tuple[str, ...]) -> bool:
    return (time.tense if isinstance(time, Adverb) else times.ANY) in classes


def _weighted(numbers: list[int]) -> tuple[int, ...]:
    """Small numbers are commoner: each up to twelve counts four times."""
    return tuple(n for number in numbers for n in [number] * (4 if number <= 12 else 1))
