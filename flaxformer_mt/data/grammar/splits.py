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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from flaxformer_mt.data.grammar import trees as t, words as w

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
HELD_OUT_SHARE = 0.25
TEST_SHARE_OF_HELD_OUT = 0.75

Combination = tuple[str, str]  # (lemma, construction); a lemma is its German citation form
Pool = tuple[str, ...]  # categories of nouns
# What a split may use in a construction, by what it must suit: nouns by pool, adjectives by
# category of noun, verbs by frame (in relative clauses also by category of object), modal verbs by
# "modal", times by tense; others by "".
Allowed = dict[tuple[str, str | Pool], list[Any]]
# Every role of a noun phrase and its German case. "event" is genitive after "during": its phrase
# has no adjective, whose form would tell.
ROLE_CASES = {
    "subject": w.NOMINATIVE,
    "predicate": w.NOMINATIVE,
    "standard": w.NOMINATIVE,
    "object": w.ACCUSATIVE,
    "for": w.ACCUSATIVE,
    "path": w.ACCUSATIVE,
    "recipient": w.DATIVE,
    "with": w.DATIVE,
    "place": w.DATIVE,
    "goal": w.DATIVE,
    "event": w.DATIVE,
    "possessor": w.GENITIVE,
}

_PERSON_ROLES = ("subject", "standard", "object", "recipient", "with", "for", "possessor")
_OTHER_ROLES = {
    "person": _PERSON_ROLES,
    "profession_m": ("predicate", *_PERSON_ROLES),
    "profession_f": ("predicate", *_PERSON_ROLES),
    "animal": ("subject", "object", "recipient", "with"),
    "furniture": ("subject", "object", "path"),
    "dish": ("subject", "object", "with", "for"),
    "drink": ("subject", "object", "with", "for"),
    "place": ("subject", "object", "place", "goal", "path"),
    "event": ("event",),
}
CATEGORY_ROLES = {name: _OTHER_ROLES.get(name, ("subject", "object")) for name in w.CATEGORIES}
NUMBERED_ROLES = ("subject", "object")

Option = tuple[bool, tuple[w.Determiner, ...]]  # (plural, determiners that share it)

_GROUPS = {
    "definite": "16 the, 7 the+, 6 possessive, 3 possessive+, 3 this, 2 this+",
    "indefinite": "7 a, 4 bare+",
    "quantified": "2 every, 2 all+, 2 many+, 2 some+, 5 counted+",
    "mass": "4 the, 2 possessive, 1 this",
}


def _options(text: str) -> tuple[Option, ...]:
    """Weights with determiners or groups of them; "+" is a plural."""
    found: list[Option] = []
    for item in text.split(", "):
        if item in _GROUPS:
            found += _options(_GROUPS[item])
        else:
            weight, name = item.removesuffix("+").split()
            group = w.POSSESSIVES if name == "possessive" else (w.DETERMINERS[name],)
            found += [(item.endswith("+"), group)] * int(weight)
    return tuple(found)


# Number and determiner of countable nouns, by role or a variant of one ("negated-object"), each as
# often as its weight says; then of mass nouns.
COUNT_OPTIONS = {
    "subject": _options("definite, definite, indefinite, quantified"),
    "no-subject": _options("1 no, 1 no+"),
    "predicate": _options("5 a, 1 possessive"),
    "plural-predicate": _options("2 bare+, 1 possessive+"),
    "negated-predicate": _options("1 not_a"),
    "negated-plural-predicate": _options("1 not_bare+"),
    "standard": _options("definite"),
    "object": _options("definite, indefinite, quantified"),
    "negated-object": _options("definite, 10 not_a, 7 not_bare+"),
    "which-object": _options("2 which, 1 which+"),
    "for": _options("definite, indefinite"),
    "path": _options("definite, 5 a"),
    "recipient": _options("definite, indefinite"),
    "with": _options("definite, indefinite"),
    "place": _options("definite, 5 a"),
    "goal": _options("definite, 5 a"),
    "event": _options("6 the, 2 possessive, 1 this"),
    "possessor": _options("3 the, 1 the+, 2 possessive"),
}
MASS_OPTIONS = {
    "subject": _options("6 bare, mass"),
    "object": _options("6 bare, mass"),
    "with": _options("12 bare, mass"),
    "for": _options("12 bare, mass"),
    "no-subject": _options("1 no"),
    "negated-object": _options("6 not_bare, mass"),
    "which-object": _options("1 which"),
}

_KIND_TENSES = dict.fromkeys(t.KINDS, t.TENSES) | {
    t.IF: (t.PRESENT, t.PERFECT, t.MODAL),
    t.WHEN: (t.PRESENT, t.PAST),
    t.BEFORE: (t.PRESENT, t.PAST),
}
_TIME_TENSES = {
    t.PRESENT: (w.ANY, "now", "habit"),
    t.PROGRESSIVE: (w.ANY, "now"),
    t.PAST: (w.ANY, "past"),
    t.PERFECT: ("perfect",),
    t.FUTURE: (w.ANY, "future"),
    t.MODAL: (w.ANY, "future"),
}
_TIMES: dict[str, Sequence[w.Adverb | int]] = {
    "time": w.SIMPLE_TIMES,
    "day": w.DAYS,
    "month": w.MONTHS,
    "date": w.MONTHS,
    "ordinal": w.ORDINALS,
    "clock": range(1, 13),
    "half": range(1, 13),
}
# Every group of categories that nouns are drawn from.
_POOLS = {
    *((category,) for category in w.CATEGORIES),
    *(pool for verb in w.VERBS for pool in verb.objects),
    *(w.PEOPLE, (*w.PEOPLE, "animal"), ("dish", "drink")),
}


def role_of(name: str) -> str:
    """The role that an option name is a variant of."""
    return name.rpartition("-")[2]


def number_lemma(number: int) -> str:
    return w.CARDINALS[number][1]


def noun_construction(role: str, plural: bool, kind: str) -> str:
    return f"{role}.{'plural' if plural else 'singular'}.{kind}"


def declension(paradigm: int, case: int, column: int) -> str:
    return f"{w.PARADIGM_NAMES[paradigm]}.{w.CASES[case]}.{w.COLUMNS[column]}"


class _Entry(NamedTuple):
    """A lexical entry in one construction, which shows one of its word forms."""

    value: Any
    lemma: str
    construction: str
    form: str
    under: Iterable[str | Pool]  # its keys in `Allowed`, as often as its weight says


def _entries() -> Iterator[_Entry]:
    """Every reachable combination of the grammar."""
    for noun in w.NOUNS:
        pools = [pool for pool in _POOLS if noun.category in pool]
        for role in CATEGORY_ROLES[noun.category]:
            for plural, kind in sorted({(p, d.kind) for p, d in _determiners(noun.mass, role)}):
                form = f"{noun.german[plural][ROLE_CASES[role]]}.{plural}"
                yield _Entry(noun, noun.lemma, noun_construction(role, plural, kind), form, pools)
    for adjective in w.ADJECTIVES:
        lemma, categories = adjective.lemma, adjective.categories
        for paradigm, case, column in _declensions(adjective):
            form, name = adjective.forms[paradigm][case][column], declension(paradigm, case, column)
            yield _Entry(adjective, lemma, name, form, categories)
        for position in t.POSITIONS:
            yield _Entry(adjective, lemma, f"predicate.{position}", "predicate", categories)
            if "person" in categories:  # people are compared, nothing else
                yield _Entry(adjective, lemma, f"comparison.{position}", "predicate", categories)
    for verb in w.VERBS:
        for kind, tense in _uses(verb):
            name = f"{tense}.{kind}"
            # No combination of the copula is held out: it is grammar more than lexicon. For other
            # verbs, order decides whether a particle is separate.
            form = name if verb is w.COPULA else f"{tense}.{kind in t.VERB_SECOND}"
            objects = verb.frame == "transitive" and kind == t.RELATIVE  # already chosen
            categories = frozenset(itertools.chain(*verb.objects)) if objects else frozenset()
            yield _Entry(verb, verb.lemma, name, form, (verb.frame, *categories))
    for modal in w.MODALS:
        for kind in t.KINDS:
            if t.MODAL in _KIND_TENSES[kind] and not (modal.past and kind == t.IF):
                name = f"{modal.tense}.{kind}"
                yield _Entry(modal, modal.lemma, name, modal.tense, (t.MODAL,))
    for pattern, adverbs in (("manner", w.MANNERS), ("frequency", w.FREQUENCIES)):
        for adverb, position in itertools.product(adverbs, t.POSITIONS):
            yield _Entry(adverb, adverb.lemma, f"{pattern}.{position}", adverb.german, ("",))
    for pattern, times in _TIMES.items():
        for time, position in itertools.product(times, ("front", *t.POSITIONS)):
            lemma = number_lemma(time) if isinstance(time, int) else time.lemma
            form, tense = (pattern, w.ANY) if isinstance(time, int) else (lemma, time.tense)
            tenses = [name for name, fitting in _TIME_TENSES.items() if tense in fitting]
            yield _Entry(time, lemma, f"{pattern}.{position}", form, tenses)
    for number in range(2, 100):
        weight = ("",) * (4 if number <= 12 else 1)
        for pattern, places in (("count", NUMBERED_ROLES), ("age", t.POSITIONS)):
            for place in places:
                yield _Entry(number, number_lemma(number), f"{pattern}.{place}", pattern, weight)


@functools.cache
def _determiners(mass: bool, role: str) -> frozenset[tuple[bool, w.Determiner]]:
    return frozenset(
        (plural, determiner)
        for name, options in (MASS_OPTIONS if mass else COUNT_OPTIONS).items()
        if role_of(name) == role
        for plural, group in options
        for determiner in group
    )


def _declensions(adjective: w.Adjective) -> list[tuple[int, int, int]]:
    """(declension, case, column): those that its nouns reach."""
    reached = {
        (determiner.paradigm, ROLE_CASES[role], w.PLURAL if plural else noun.gender)
        for noun in w.NOUNS
        if noun.category in adjective.categories
        for role in CATEGORY_ROLES[noun.category]
        if role != "event"
        for plural, determiner in _determiners(noun.mass, role)
    }
    return sorted(reached)


def _uses(verb: w.Verb) -> Iterator[tuple[str, str]]:
    """(kind of clause, tense), where the English source tells tenses apart."""
    tenses = set(t.TENSES)
    if verb.frame == "price":
        tenses = {t.PRESENT, t.FUTURE}
    else:
        tenses -= {t.PROGRESSIVE} if verb.stative else set()
        tenses -= set() if verb.past_is_distinct else {t.PAST}
        tenses -= {t.PERFECT} if verb.preterite else set()
    for kind in t.KINDS:
        if verb.frame in ("that", "whether") and kind not in t.VERB_SECOND:
            continue  # complements do not nest
        if verb.frame in ("copula", "price") and kind == t.BEFORE:
            continue  # a state gives no time to be before
        yield from ((kind, tense) for tense in _KIND_TENSES[kind] if tense in tenses)


@functools.cache
def assignments() -> dict[Combination, Split]:
    """The split of every reachable combination; "train" is open to all splits."""
    forms: dict[Combination, str] = {}
    for entry in _entries():
        forms[entry.lemma, entry.construction] = entry.form
    families: dict[tuple[str, str], list[str]] = {}
    for (lemma, construction), form in forms.items():
        families.setdefault((lemma, form), []).append(construction)
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
def held_out(split: Split) -> frozenset[Combination]:
    """The combinations that only `split` shows (none for "train")."""
    owned = (combination for combination, owner in assignments().items() if owner == split)
    return frozenset(owned if split != "train" else ())


@functools.cache
def allowed(split: Split) -> Allowed:
    """What a split may put where."""
    found: Allowed = {}
    for entry in _entries():
        if assignments()[entry.lemma, entry.construction] in ("train", split):
            for key in entry.under:
                found.setdefault((entry.construction, key), []).append(entry.value)
    return found


def combinations(sentence: t.Sentence) -> set[Combination]:
    """Every (lemma, construction) of a sentence."""
    found: set[Combination] = set()
    for clause in (sentence.before, sentence.main, sentence.after, sentence.second):
        _add(found, clause)
    return found


def _add(found: set[Combination], tree: object, position: str = "") -> None:
    """Adds the combinations of a subtree; `position` is that of its clause."""
    if isinstance(tree, t.Clause):
        position = t.POSITION[tree.kind]
        found.add((tree.verb.lemma, f"{tree.tense}.{tree.kind}"))
        if tree.modal is not None:
            found.add((tree.modal.lemma, f"{tree.modal.tense}.{tree.kind}"))
        for adverb, pattern in ((tree.manner, "manner"), (tree.frequency, "frequency")):
            if adverb is not None:
                found.add((adverb.lemma, f"{pattern}.{position}"))
        if isinstance(tree.time, t.Time):
            place = "front" if tree.front == "time" else position
            found.update((lemma, f"{pattern}.{place}") for lemma, pattern in tree.time.parts)
        for field in ("subject", "object", "recipient", "predicate", "time", "companion", "place"):
            _add(found, getattr(tree, field), position)
        _add(found, tree.complement)
    elif isinstance(tree, t.PrepositionalPhrase):
        _add(found, tree.argument)
    elif isinstance(tree, t.Coordination):
        _add(found, tree.first)
        _add(found, tree.second)
    elif isinstance(tree, t.NounPhrase):
        determiner = tree.determiner
        found.add((tree.noun.lemma, noun_construction(tree.role, tree.plural, determiner.kind)))
        if tree.adjective is not None:
            form = declension(determiner.paradigm, ROLE_CASES[tree.role], tree.column)
            found.add((tree.adjective.lemma, form))
        if tree.number is not None and tree.number < 100:
            found.add((number_lemma(tree.number), f"count.{tree.role}"))
        _add(found, tree.possessor)
        _add(found, tree.relative)
    elif isinstance(tree, t.Quality):
        found.update((one.lemma, f"predicate.{position}") for one in tree.adjectives)
    elif isinstance(tree, t.Comparison):
        found.add((tree.adjective.lemma, f"comparison.{position}"))
        _add(found, tree.standard)
    elif isinstance(tree, t.Amount) and tree.unit is t.YEARS:
        found.add((number_lemma(tree.number), f"age.{position}"))
