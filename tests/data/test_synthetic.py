"""The built-in corpus: reproducible, unambiguous, held out."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter, defaultdict

import pytest

from flaxformer_mt.data import synthetic
from flaxformer_mt.data.grammar.splits import assignments, combinations, held_out

WORD = r"[\w'-]+"
Derivations = list[synthetic.Derivation]


@pytest.fixture(scope="module")
def splits() -> dict[str, Derivations]:
    sizes = {"train": 20_000, "valid": 5000, "test": 5000}
    return {split: list(synthetic.derivations(split, sizes[split])) for split in synthetic.SPLITS}


def test_a_stream_is_lazy_and_begins_with_the_shorter_one(splits):
    endless = synthetic.pairs("train", 10**12)
    assert [*itertools.islice(endless, 50)] == [each[:2] for each in splits["train"][:50]]
    # Another seed gives others.
    first, second = (set(synthetic.pairs("train", 500, seed=seed)) for seed in (0, 1))
    assert len(first & second) < 25


def test_the_stream_is_the_published_one(splits):
    """A change of the grammar changes the corpus that published scores belong to. If it was meant,
    put the new digests here, retrain the quickstart and publish its new score."""
    for split, digest in (
        ("train", "8ea15d9243370984"),
        ("valid", "9ff05cf9bba72c40"),
        ("test", "9fef6708f53cc3a9"),
    ):
        text = "\n".join("\t".join(each[:2]) for each in splits[split][:5000])
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


def test_unknown_splits_and_negative_sizes_are_refused():
    with pytest.raises(ValueError, match="splits train, valid, test, not 'dev'"):
        synthetic.pairs("dev", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        synthetic.pairs("train", -1)


def test_a_held_out_sentence_has_a_combination_that_no_other_split_shows(splits):
    known = {name: [combinations(one.tree) for one in made] for name, made in splits.items()}
    shown = {name: set().union(*found) for name, found in known.items()}
    # The rule knows every combination.
    assert set().union(*shown.values()) <= assignments().keys()
    for split, others in (("test", ("train", "valid")), ("valid", ("train", "test"))):
        assert all(found & held_out(split) for found in known[split])
        assert not any(shown[other] & held_out(split) for other in others)
    shares = Counter(assignments().values())
    assert 0.2 < 1 - shares["train"] / shares.total() < 0.27
    assert 0.15 < shares["test"] / shares.total() < 0.22
    # Training shows every lemma and every construction, mostly often.
    count = Counter(itertools.chain(*known["train"]))
    for part in (0, 1):
        often: Counter[str] = Counter()
        for combination, times in count.items():
            often[combination[part]] += times
        assert {combination[part] for combination in assignments()} == often.keys()
        assert min(often.values()) >= 5 and sorted(often.values())[len(often) // 2] > 100


@pytest.mark.extended
def test_a_source_has_one_target(splits):
    targets = defaultdict(set)
    more = synthetic.derivations("train", 30_000, seed=1)
    for derivation in (*splits["train"], *splits["test"], *more):
        targets[derivation.src].add(derivation.tgt)
    assert [src for src, tgts in targets.items() if len(tgts) > 1] == []


def test_text_is_cased_and_punctuated_and_in_one_split(splits):
    word = "[a-zA-ZäöüÄÖÜß'-]+,?"
    for src, tgt, _ in splits["train"]:
        for text in (src, tgt):
            assert re.fullmatch(rf"(?=[A-ZÄÖÜ]){word}( {word})+[.?]", text)
            assert not re.search(r",[.?]", text)
            assert 3 <= len(text.split()) <= 35
        assert src[-1] == tgt[-1]
    for one, other in itertools.combinations(splits.values(), 2):
        assert not {each.src for each in one} & {each.src for each in other}


def test_training_shows_the_word_forms_that_the_test_asks_for(splits):
    for side in (0, 1):
        trained = {word for pair in splits["train"] for word in re.findall(WORD, pair[side])}
        asked = Counter(word for pair in splits["test"] for word in re.findall(WORD, pair[side]))
        unseen = sum(count for word, count in asked.items() if word not in trained)
        assert unseen / asked.total() < 0.005
