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

import functools
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from flaxformer_mt.grammar import words as w
from flaxformer_mt.grammar.clauses import POSITIONS, VERB_SECOND, Combination

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
HELD_OUT_SHARE = 0.25
TEST_SHARE_OF_HELD_OUT = 0.75

Use = tuple[Any, tuple[Combination]]  # a word, and the combination that its use shows


@functools.cache
def repeat(weights: str) -> tuple[str, ...]:
    """Each name as often as its weight says: "2 when, 1 if"."""
    weighted = (entry.split() for entry in weights.split(", ") if entry)
    return tuple(name for weight, name in weighted for _ in range(int(weight)))


def tenses(kind: str, span: str) -> tuple[str, ...]:
    """Those of a kind of clause, repeated by weight, in a span: "past", "now" or "anytime"."""
    return repeat(getattr(w.CLAUSES[kind], span) or getattr(w.CLAUSES["main"], span))


# Abbreviations in the table of noun phrases: determiners by weight, "+" is plural.
_DETERMINERS = {
    "definite": "16 the, 7 the+, 6 possessive, 3 possessive+, 3 this, 2 this+",
    "indefinite": "7 a, 4 bare+",
    "quantified": "2 every, 2 all+, 2 many+, 2 some+, 5 counted+",
    "mass": "4 the, 2 possessive, 1 this",
}
_ADVERBS = {kind: words for kind, words in w.ADVERBS.items() if kind != "comment"} | {
    "date": w.ADVERBS["month"],
    "ordinal": w.ORDINALS,
    "clock": w.HOURS,
    "half": w.HOURS,
}


@functools.cache
def options(kind: w.Word, mass: bool) -> list[tuple[str, tuple[w.Word, ...]]]:
    """(number, determiners that share it) of a kind of noun phrase, repeated by weight."""
    weights = kind.of_mass_nouns if mass else kind.determiners
    numbered = []
    for name in repeat(weights.format(**_DETERMINERS)):
        number = "plural" if name.endswith("+") else "singular"
        numbered.append((number, w.DETERMINERS[name.removesuffix("+")]))
    return numbered


class _Entry(NamedTuple):
    """A word in one construction, which shows one of its forms."""

    word: w.Word
    construction: str
    form: str
    kinds: Collection[str] = ()  # it must suit one of them, if there are any
    weight: int = 1


def _entries() -> Iterator[_Entry]:
    """Every reachable combination of the grammar, some of them more than once."""
    yield from _noun_entries()
    yield from _adjective_entries()
    yield from _verb_entries()
    yield from _modal_entries()
    yield from _adverb_entries()
    yield from _number_entries()


def _noun_uses() -> Iterator[tuple[w.Word, w.Word, str, w.Word]]:
    """Each noun with each kind of noun phrase, number and determiner that it goes with."""
    for noun, phrase in itertools.product(w.NOUNS, w.NOUN_PHRASES.values()):
        if noun.category not in phrase.nouns.split():
            continue
        for number, determiners in set(options(phrase, noun.category in w.MASS)):
            for determiner in determiners:
                yield noun, phrase, number, determiner


def _noun_entries() -> Iterator[_Entry]:
    for noun, phrase, number, determiner in _noun_uses():
        construction = f"{phrase.role}.{number}.{determiner.kind}"
        word_form = noun.forms[f"{phrase.case}.{noun.column(number)}"]
        yield _Entry(noun, construction, f"{word_form}.{number == 'plural'}", [noun.category])


def _adjective_entries() -> Iterator[_Entry]:
    declensions = _declensions()
    for adjective in w.ADJECTIVES:
        described = adjective.describes.split()
        for declension in set().union(*(declensions[category] for category in described)):
            yield _Entry(adjective, declension, adjective.stem + w.ENDINGS[declension], described)
        for position in POSITIONS:
            yield _Entry(adjective, f"predicate.{position}", "predicate", described)
            if "person" in described:  # people are compared, nothing else
                yield _Entry(adjective, f"comparison.{position}", "predicate", described)


def _declensions() -> dict[str, set[str]]:
    """The declensions that an adjective may have, by the category of its noun."""
    declensions = defaultdict(set)
    for noun, phrase, number, determiner in _noun_uses():
        if phrase.role != "event":
            declension = f"{determiner.paradigm}.{phrase.case}.{noun.column(number)}"
            declensions[noun.category].add(declension)
    return declensions


def _verb_entries() -> Iterator[_Entry]:
    for verb, kind in itertools.product(w.VERBS, w.CLAUSES):
        # A relative clause may have its object already, a noun that suits the verb.
        has_object = verb.frame == "transitive" and kind == "relative"
        objects = itertools.chain(*verb.pools) if has_object else ()
        kinds = verb.frame, *objects
        for tense in {*tenses(kind, "past"), *tenses(kind, "now")}:
            if _is_used(verb, tense, kind):
                # Order decides whether a particle is separate.
                form = f"{tense}.{kind in VERB_SECOND}"
                yield _Entry(verb, f"{tense}.{kind}", form, kinds)


def _modal_entries() -> Iterator[_Entry]:
    for modal, kind in itertools.product(w.MODALS, w.CLAUSES):
        if "modal" in tenses(kind, "now") and not (modal.past and kind == "if"):
            tense = "past" if modal.past else "present"
            yield _Entry(modal, f"{tense}.{kind}", tense, ["modal"])


def _adverb_entries() -> Iterator[_Entry]:
    for pattern, adverbs in _ADVERBS.items():
        timeless = pattern in ("manner", "frequency")
        positions = POSITIONS if timeless else ("front", *POSITIONS)
        for adverb, position in itertools.product(adverbs, positions):
            form = pattern if adverbs is w.HOURS else adverb.german
            yield _Entry(adverb, f"{pattern}.{position}", form, adverb.tenses.split())


def _number_entries() -> Iterator[_Entry]:
    ages = [f"age.{position}" for position in POSITIONS]
    constructions = "count.subject", "count.object", *ages
    for number, construction in itertools.product(w.NUMBERS[2:], constructions):
        weight = 4 if number in w.HOURS else 1
        yield _Entry(number, construction, construction.partition(".")[0], weight=weight)


def _is_used(verb: w.Word, tense: str, kind: str) -> bool:
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
    by_construction: dict[str, dict[str, _Entry]] = defaultdict(dict)
    for entry in _entries():
        by_construction[entry.construction][entry.word.german] = entry
    return by_construction


@functools.cache
def assignments() -> dict[Combination, Split]:
    """The split of every reachable combination; "train" is open to all splits."""
    families = defaultdict(set)
    for entries in _constructions().values():
        for entry in entries.values():
            families[entry.word.german, entry.form].add(entry.construction)
    split: dict[Combination, Split] = {}
    for (lemma, form), family in families.items():
        held_out = int(len(family) * HELD_OUT_SHARE + _digest(lemma, form))
        held_out = min(held_out, len(family) - 1)
        ranked = sorted(family, key=functools.partial(_digest, lemma))
        for construction in ranked[held_out:]:
            split[lemma, construction] = "train"
        for construction in ranked[:held_out]:
            test = _digest(lemma, construction, "test") < TEST_SHARE_OF_HELD_OUT
            split[lemma, construction] = "test" if test else "valid"
    return split


def _digest(*parts: str) -> float:
    """A number in [0, 1) from the text only."""
    raw = hashlib.blake2b("|".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") / 2**64


@functools.cache
def choices(split: Split, construction: str, *kinds: str) -> list[Use]:
    """The words that a split may use in a construction, each as often as its weight says.

    They suit one of the `kinds`: categories of nouns for a noun or an adjective; a frame for a
    verb, or the category of the object if a relative clause has it already; "modal" for a modal
    verb; a tense for a time. Adverbs and numbers suit all.
    """
    uses: list[Use] = []
    for lemma, entry in _constructions()[construction].items():
        combination = lemma, construction
        is_allowed = assignments()[combination] in ("train", split)
        suits_all = not kinds or not entry.kinds
        if is_allowed and (suits_all or not set(kinds).isdisjoint(entry.kinds)):
            uses += [(entry.word, (combination,))] * entry.weight
    return uses
