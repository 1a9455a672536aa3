"""The vocabulary is learned from what is trained on, as often as it is trained on."""

import random
from dataclasses import replace

import pytest

from flaxformer_mt.config.schema import FilterConfig, VocabularyConfig
from flaxformer_mt.data.prepare.manifest import read_manifest
from flaxformer_mt.data.prepare.sieve import mix
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.grammar.text import pairs
from tests.data.prepare.corpora import data_config, prepare, write

HAN = [chr(0x4E00 + number) for number in range(700)]
LINES = ["".join(HAN[first : first + 10]) for first in range(0, 700, 10)]
# What a filter drops, beside good pairs.
DROPPED = {
    "script": (FilterConfig(script=0.5), [(f"Page {n}", line) for n, line in enumerate(LINES)]),
    "identical": (FilterConfig(identical=True), [(line, line) for line in LINES]),
    "max_length": (FilterConfig(), [(line + " x" * 100, "lang") for line in LINES]),
    "max_ratio": (FilterConfig(max_ratio=3), [("Page", " ".join(line * 2)) for line in LINES]),
}


@pytest.fixture(scope="module")
def good():
    return list(pairs("train", 600))


def learned(folder, train, setting, **changes):
    folder.mkdir()
    write(folder / "text", "train", train)
    write(folder / "text", "valid", train[:20])
    config = data_config(folder / "text", src_lang="en", tgt_lang="de", **changes)
    config = replace(config, filter=replace(setting, max_length=100))
    prepare(config, directory=folder / "run", workers=0)
    return Vocabularies.load(folder / "run" / "vocabulary").src


@pytest.mark.parametrize("name", DROPPED)
def test_dropped_pairs_have_no_types(tmp_path, good, name):
    setting, bad = DROPPED[name]
    size = {"vocabulary": VocabularyConfig(size=1000)}
    if name == "max_ratio":
        size = {"vocabulary": VocabularyConfig(size=1000, soft_size=True)}
    without = learned(tmp_path / "without", good, setting, **size)
    with_bad = learned(tmp_path / "with", [*good, *bad], setting, **size)
    assert with_bad.pieces() == without.pieces()


def test_duplicates_count_once(tmp_path, good):
    setting = FilterConfig(duplicates=True)
    size = {"vocabulary": VocabularyConfig(size=300)}
    distinct = [*dict.fromkeys(good)]
    without = learned(tmp_path / "without", distinct, setting, **size)
    with_duplicates = learned(
        tmp_path / "with", [*distinct, *[distinct[5]] * 3000], setting, **size
    )
    assert with_duplicates.pieces() == without.pieces()


def test_no_dropped_pair_comes_back_as_unknown(tmp_path, good):
    """Characters without a type make one token of a long word, which would then be kept."""
    bad = [("Page", line) for line in LINES]
    size = {"vocabulary": VocabularyConfig(size=1000)}
    learned(tmp_path / "with", [*good, *bad], FilterConfig(max_ratio=3), **size)
    account = read_manifest(tmp_path / "with" / "run" / "data")["corpora"][0]
    assert account["dropped"]["length ratio"] == len(LINES)
    assert account["unknown"]["tgt"]["unknown"] == 0


def words_of(letters, number, seed):
    drawn = random.Random(seed)
    return ["".join(drawn.choices(letters, k=6)) for _ in range(number)]


def test_corpora_count_by_their_weights(tmp_path):
    """A small corpus of the same weight gets as many types as a large one."""
    drawn = random.Random(1)
    latin, cyrillic = words_of("abcdefghij", 400, 2), words_of("абвгдежзик", 400, 3)
    texts = {"large": (latin, 4000), "small": (cyrillic, 100)}
    for name, (words, number) in texts.items():
        lines = [" ".join(drawn.choices(words, k=8)) for _ in range(number)]
        write(tmp_path / "text", name, [(line, line) for line in lines])
    write(tmp_path / "text", "valid", [(latin[0], latin[1])])
    config = data_config(
        tmp_path / "text",
        ("large", "small"),
        vocabulary=VocabularyConfig(size=500),
        filter=FilterConfig(max_length=200),
    )
    equal = tuple(replace(corpus, weight=1.0) for corpus in config.train)
    rates = []
    for name, train in (("none", config.train), ("equal", equal)):
        prepare(replace(config, train=train), directory=tmp_path / name)
        src = Vocabularies.load(tmp_path / name / "vocabulary").src
        rates.append([len(src.encode([" ".join(words)])[0]) / 400 for words, _ in texts.values()])
    assert rates[0][1] > 1.3 * rates[0][0]
    assert rates[1][1] < 1.15 * rates[1][0]


def test_pools_are_mixed_by_shares_without_losing_records():
    large, small = [*range(40)], [*"ab"]
    mixed = mix([large, small], [0.5, 0.5], 1000)
    assert mixed == large + [*"ab"] * 20
    assert mix([large, small], [0.5, 0.5], 20) == [*range(10)] + [*"ab"] * 5
    assert mix([large], [1.0], 5) == large
