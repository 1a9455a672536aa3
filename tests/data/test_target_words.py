"""Targets of whole words, or of the source's and brackets: nothing is split, and nothing unknown
gets into a store."""

import dataclasses

import numpy as np
import pytest

from flaxformer_mt.config import expected_types
from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.prepare.make import valid_text
from flaxformer_mt.data.prepare.manifest import read_manifest
from flaxformer_mt.data.sampling import Resampler
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies, train_pair
from tests.data.pairs import in_memory, listed
from tests.data.prepare.corpora import data_config, prepare, write

TREES = [
    ("the cat sleeps .", "(S (NP XX XX )NP (VP XX )VP XX )S"),
    ("a dog sees the (S cat", "(S (NP XX XX )NP (VP XX (NP XX XX XX )NP )VP )S"),
    ("XX marks it", "(S (NP XX )NP (VP XX (NP XX )NP )VP )S"),
]
CONFIG = VocabularyConfig(
    size=50, shared=False, tgt_types="words", tgt_words=("XX", "(PP", ")PP", "``")
)
WORDS = {word for _, target in TREES for word in target.split(" ")} | set(CONFIG.tgt_words)


TARGETS = [target for _, target in TREES] + ["(PP `` )PP"]


@pytest.fixture(scope="module")
def vocabularies():
    return train_pair(TREES, CONFIG)


def test_types_are_the_words_of_targets_and_those_that_are_named(vocabularies):
    assert vocabularies.src.size == 50 and expected_types(CONFIG) == (50, 8)
    assert "▁(NP" not in vocabularies.src.pieces()
    pieces = vocabularies.tgt.pieces()
    assert pieces[:4] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert sorted(pieces[4:]) == sorted(f"▁{word}" for word in WORDS)


@pytest.mark.parametrize("word", ["(NPX", "(N", "XXX", "(", "NP"])
def test_another_word_is_unknown_and_not_pieces_of_known_ones(vocabularies, word):
    assert vocabularies.tgt.encode([f"(S {word} XX"])[0][1:2] == [UNK]


def test_each_word_is_one_token_and_comes_back(vocabularies):
    vocabulary = vocabularies.tgt
    encoded = vocabulary.encode(TARGETS)
    assert [len(row) for row in encoded] == [len(target.split(" ")) for target in TARGETS]
    assert not {PAD, BOS, EOS, UNK} & {token for row in encoded for token in row}
    assert vocabulary.decode(encoded) == TARGETS
    flat, lengths = vocabulary.encode_flat([target.encode() for target in TARGETS])
    assert flat.tolist() == [token for row in encoded for token in (*row, EOS)]
    assert lengths.tolist() == [len(row) + 1 for row in encoded]


def test_subword_regularisation_leaves_words_whole(vocabularies):
    words = [[token] for token in range(4, vocabularies.tgt.size)]
    pairs = in_memory(words, words)
    drawn = Resampler(vocabularies, 0.5, seed=1).draw(pairs, np.arange(len(words)), 0, (9, 9))
    assert listed(drawn, "tgt") == [[*word, EOS] for word in words]


def test_a_store_has_no_unknown_target_word_and_says_which_was_left_out(tmp_path):
    odd = ("so it is", "(SINV XX (NP XX )NP XX )SINV")
    for name, pairs in (("train", TREES), ("valid", [TREES[0], odd])):
        write(tmp_path, name, pairs)
    config = data_config(tmp_path, vocabulary=CONFIG)
    store = prepare(config, directory=tmp_path / "run", workers=0)
    assert len(store.train) == 3 and len(store.valid) == 1
    account = read_manifest(tmp_path / "run" / "data")["corpora"][1]
    assert account["dropped"] == {"unknown target word": 1}
    [example] = account["examples"]
    assert example["detail"] == "'(SINV'; you can add it to data.vocabulary.tgt_words"
    # What is decoded and scored is all of it.
    assert valid_text(tmp_path / "run" / "data")[1] == [TREES[0][1], odd[1]]
    # The same call again finds it up to date.
    assert prepare(config, directory=tmp_path / "run").digest == store.digest
    assert Vocabularies.load(tmp_path / "run" / "vocabulary").tgt.size == 4 + len(WORDS)


def test_trees_have_their_sources_tokens_and_brackets_or_are_left_out(tmp_path):
    config = dataclasses.replace(
        CONFIG, size=295, shared=True, byte_fallback=True, tgt_types="brackets", tgt_words=("(PP",)
    )
    train = [("the cat", "(S (NP the cat )NP )S"), ("sleeps", "(VP sleeps )VP")]
    valid = [
        ("the 日本 S", "(S the (NP 日本 S )NP )S"),
        ("the cat", "(S XX XX )S"),
        ("the cat", "(S the )S"),
        ("the cat", "(S (SINV the cat )SINV )S"),
    ]
    for name, pairs in (("train", train), ("valid", valid)):
        write(tmp_path, name, pairs)
    data = data_config(tmp_path, vocabulary=config)
    store = prepare(data, directory=tmp_path / "run", workers=0)
    assert len(store.train) == 2 and len(store.valid) == 1
    account = read_manifest(tmp_path / "run" / "data")["corpora"][1]
    assert account["dropped"] == {"leaves other than the source's words": 3}
    assert [example["detail"].split(" ")[0] for example in account["examples"]] == [
        "write",
        "write",
        "'(SINV';",
    ]
    vocabulary = Vocabularies.load(tmp_path / "run" / "vocabulary").tgt
    pieces = vocabulary.pieces()
    brackets = {place for place, piece in enumerate(pieces) if piece[:2] in ("▁(", "▁)")}
    assert {pieces[bracket] for bracket in brackets} == {
        f"▁{s}{x}" for x in ("S", "NP", "VP") for s in "()"
    } | {"▁(PP"}
    src, tgt = vocabulary.encode(valid[0])
    assert [token for token in tgt if token not in brackets] == src and UNK not in src
    assert len(tgt) == len(src) + 4 and vocabulary.decode([src, tgt]) == [*valid[0]]
