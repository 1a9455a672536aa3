"""The built-in corpus: reproducible, unambiguous, held out, not solvable word by word."""

from __future__ import annotations

import hashlib
import itertools
import re
import statistics
from collections import Counter, defaultdict

import pytest

from flaxformer_mt.data import synthetic
from flaxformer_mt.data.grammar.splits import Combination, assignments, combinations, held_out

TRAIN_SIZE = 20_000
WORD = r"[\w'-]+"


@pytest.fixture(scope="module")
def train() -> list[synthetic.Derivation]:
    return list(synthetic.derivations("train", TRAIN_SIZE))


@pytest.fixture(scope="module")
def test() -> list[synthetic.Derivation]:
    return list(synthetic.derivations("test", 5000))


def known(derivation: synthetic.Derivation) -> set[Combination]:
    """The (lemma, construction) combinations of the sentence."""
    return set(combinations(derivation.tree))


def words(text: str) -> list[str]:
    return re.findall(WORD, text)


def test_a_stream_is_lazy_and_begins_with_the_shorter_one():
    endless = synthetic.pairs("train", 10**12)
    assert list(itertools.islice(endless, 50)) == list(synthetic.pairs("train", 50))
    # Another seed gives others.
    first, second = (set(synthetic.pairs("train", 500, seed=seed)) for seed in (0, 1))
    assert len(first & second) < 25


STREAMS = {
    "train": "8ea15d9243370984",
    "valid": "9ff05cf9bba72c40",
    "test": "9fef6708f53cc3a9",
}


@pytest.mark.parametrize("split", synthetic.SPLITS)
def test_the_stream_is_the_published_one(split):
    """A change of the grammar changes the corpus that published scores belong to. If it was meant,
    put the new digest in STREAMS, retrain the quickstart and publish its new score."""
    text = "\n".join("\t".join(pair) for pair in synthetic.pairs(split, 5000))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == STREAMS[split]


def test_unknown_splits_and_negative_sizes_are_refused():
    with pytest.raises(ValueError, match="splits train, valid, test, not 'dev'"):
        synthetic.pairs("dev", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        synthetic.pairs("train", -1)
    assert list(synthetic.pairs("train", 0)) == []


def test_every_held_out_sentence_has_a_combination_that_training_never_shows(train, test):
    shown = set().union(*(known(derivation) for derivation in train))
    valid = list(synthetic.derivations("valid", 3000))
    for split, derivations in (("test", test), ("valid", valid)):
        for derivation in derivations:
            new = known(derivation) & held_out(split)
            assert new, derivation.src
            assert not new & shown
    assert not held_out("test") & held_out("valid")
    # No sentence has a combination that the rule does not know.
    for derivation in itertools.chain(train, test):
        assert known(derivation) <= assignments().keys()
    assert not set().union(*(known(v) for v in valid)) & held_out("test")
    assert not set().union(*(known(t) for t in test)) & held_out("valid")


def test_about_a_quarter_of_the_combinations_is_held_out():
    shares = Counter(assignments().values())
    total = sum(shares.values())
    assert 0.2 < 1 - shares["train"] / total < 0.27
    assert 0.15 < shares["test"] / total < 0.22


def test_every_lemma_and_every_construction_is_often_trained(train):
    shown = Counter(pair for derivation in train for pair in known(derivation))
    lemmas, constructions = Counter(), Counter()
    for (lemma, construction), count in shown.items():
        lemmas[lemma] += count
        constructions[construction] += count
    assert {lemma for lemma, _ in assignments()} == lemmas.keys()
    assert {construction for _, construction in assignments()} == constructions.keys()
    assert min(lemmas.values()) >= 5
    assert min(constructions.values()) >= 5
    assert statistics.median(lemmas.values()) > 100
    assert statistics.median(constructions.values()) > 100


@pytest.mark.extended
def test_a_source_has_one_target(train, test):
    targets = defaultdict(set)
    for derivation in (*train, *test, *synthetic.derivations("train", 30_000, seed=1)):
        targets[derivation.src].add(derivation.tgt)
    assert [src for src, tgts in targets.items() if len(tgts) > 1] == []


def test_text_is_cased_and_punctuated(train):
    word = "[a-zA-ZäöüÄÖÜß'-]+,?"
    for derivation in train:
        for text in (derivation.src, derivation.tgt):
            assert re.fullmatch(rf"(?=[A-ZÄÖÜ]){word}( {word})+[.?]", text)
            assert not re.search(r",[.?]", text)
            assert 3 <= len(text.split()) <= 35
        assert derivation.src[-1] == derivation.tgt[-1]
