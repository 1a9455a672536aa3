"""The built-in corpus: reproducible, unambiguous, held out, not solvable word by word."""

from __future__ import annotations

import hashlib
import itertools
import re
import statistics
from collections import Counter, defaultdict

import pytest
import sacrebleu

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


def test_splits_share_no_sentence(train, test):
    seen = {derivation.src for derivation in train}
    valid = {src for src, _ in synthetic.pairs("valid", 3000)}
    tested = {derivation.src for derivation in test}
    assert not seen & valid
    assert not seen & tested
    assert not valid & tested


def test_training_shows_the_word_forms_that_the_test_asks_for(train, test):
    for side in ("src", "tgt"):
        trained = {word for derivation in train for word in words(getattr(derivation, side))}
        asked = Counter(word for derivation in test for word in words(getattr(derivation, side)))
        unseen = sum(count for word, count in asked.items() if word not in trained)
        assert unseen / asked.total() < 0.005


def bleu(hypotheses: list[str], references: list[str]) -> float:
    return sacrebleu.corpus_bleu(hypotheses, [references]).score


def test_copying_and_translating_word_by_word_score_below_40(train, test):
    assert bleu([t.src for t in test[:1000]], [t.tgt for t in test[:1000]]) < 40
    dictionary = learned_dictionary(train[:5000])
    # The words' translations in English order, with the source's commas and mark.
    some = test[:1000]
    hypotheses = [re.sub(WORD, lambda word: dictionary.get(word[0], word[0]), t.src) for t in some]
    score = bleu(hypotheses, [t.tgt for t in some])
    assert 5 < score < 40  # a dictionary that knew nothing would prove nothing


def learned_dictionary(train: list[synthetic.Derivation]) -> dict[str, str]:
    """Of each English word the German one that most nearly occurs in the same sentences."""
    together: dict[str, Counter[str]] = defaultdict(Counter)
    english, german = Counter(), Counter()
    for derivation in train:
        src, tgt = set(words(derivation.src)), set(words(derivation.tgt))
        english.update(src)
        german.update(tgt)
        for word in src:
            together[word].update(tgt)
    return {
        word: max(counts, key=lambda other: 2 * counts[other] / (english[word] + german[other]))
        for word, counts in together.items()
    }
