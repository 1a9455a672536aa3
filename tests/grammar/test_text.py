"""The built-in corpus: reproducible, unambiguous, held out."""

import hashlib
import itertools
from collections import Counter, defaultdict

import pytest

from flaxformer_mt.grammar import text
from flaxformer_mt.grammar.splits import assignments


@pytest.fixture(scope="module")
def splits():
    sizes = {"train": 20_000, "valid": 5000, "test": 5000}
    return {split: list(text.derivations(split, sizes[split])) for split in text.SPLITS}


def test_a_stream_is_lazy_and_begins_with_the_shorter_one(splits):
    endless = text.pairs("train", 10**12)
    assert [*itertools.islice(endless, 50)] == [
        derivation[:2] for derivation in splits["train"][:50]
    ]
    # Another seed gives others.
    first, second = (set(text.pairs("train", 500, seed=seed)) for seed in (0, 1))
    assert len(first & second) < 25


def test_the_stream_is_the_published_one(splits):
    """A change of the grammar changes the corpus that published scores belong to. If it was meant,
    put the new digests here, retrain the quickstart and publish its new score."""
    for split, digest in (
        ("train", "3fe141bfb370c1e4"),
        ("valid", "9ff05cf9bba72c40"),
        ("test", "9fef6708f53cc3a9"),
    ):
        lines = "\n".join("\t".join(derivation[:2]) for derivation in splits[split])
        assert hashlib.sha256(lines.encode()).hexdigest()[:16] == digest


def test_a_held_out_sentence_has_a_combination_that_no_other_split_shows(splits):
    known = {
        name: [set(derivation.shown) for derivation in derivations]
        for name, derivations in splits.items()
    }
    by_split = {name: set().union(*combinations) for name, combinations in known.items()}
    # The rule knows every combination.
    assert set().union(*by_split.values()) <= assignments().keys()
    for split, other_splits in (("test", ("train", "valid")), ("valid", ("train", "test"))):
        held_out = {choice for choice, owner in assignments().items() if owner == split}
        assert all(shown & held_out for shown in known[split])
        assert not any(by_split[other_split] & held_out for other_split in other_splits)
    shares = Counter(assignments().values())
    assert 0.2 < 1 - shares["train"] / shares.total() < 0.27
    assert 0.15 < shares["test"] / shares.total() < 0.22

    # Training shows every lemma and every construction.
    for part in (0, 1):
        trained = {choice[part] for choice in by_split["train"]}
        assert {choice[part] for choice in assignments()} == trained


@pytest.mark.extended
def test_a_source_has_one_target(splits):
    targets = defaultdict(set)
    further = text.derivations("train", 30_000, seed=1)
    for derivation in (*splits["train"], *splits["test"], *further):
        targets[derivation.src].add(derivation.tgt)
    assert [src for src, tgts in targets.items() if len(tgts) > 1] == []
