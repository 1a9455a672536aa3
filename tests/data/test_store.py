"""The token store: what goes in comes out, and nothing damaged is opened."""

import itertools
import json
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.data import store as store_module
from flaxformer_mt.data.order import StoredCorpus
from flaxformer_mt.data.store import Store, StoreError, TokenPairs
from flaxformer_mt.data.store_writer import StoreWriter
from flaxformer_mt.data.vocabulary import EOS
from tests.data.pairs import in_memory, listed, tokens

SRC = [[5, 6, 7], [8], [9, 10]]
TGT = [[11], [12, 13, 14, 15], [16]]
VALID = [[20, 21]]


def append(writer: StoreWriter, split: str, src: list[list[int]], tgt: list[list[int]]) -> None:
    """Adds pairs of token ids without marks."""
    sides = (tokens(src), tokens(tgt))
    writer.append(split, *itertools.chain(*((s.flat, np.diff(s.offsets)) for s in sides)))


def write(directory, src=SRC, tgt=TGT, valid=VALID, *, size=100):
    directory.mkdir(parents=True)
    writer = StoreWriter(directory, vocabulary_size=size, vocabulary_digest="v" * 64)
    append(writer, "train", src[:2], tgt[:2])
    append(writer, "valid", valid, valid)
    append(writer, "train", src[2:], tgt[2:])
    append(writer, "train", [], [])
    writer.finish()
    return directory


@pytest.mark.parametrize(
    ("size", "bits", "shard_tokens"), [(65_536, 16, 1), (65_537, 32, 6), (9, 16, 1 << 27)]
)
def test_pairs_come_back_with_their_end_mark(tmp_path, size, bits, shard_tokens, monkeypatch):
    monkeypatch.setattr(store_module, "SHARD_TOKENS", shard_tokens)
    store = Store.open(write(tmp_path / "data", size=size), vocabulary_digest="v" * 64)
    # Also in another process, to which goes where the files are.
    parcel = pickle.dumps(store.train)
    assert b"train-00000.src.tokens" in parcel
    for train in (store.train, pickle.loads(parcel)):
        assert listed(train, "src") == [[*s, EOS] for s in SRC]
        assert listed(train, "tgt") == [[*s, EOS] for s in TGT]
    assert listed(store.valid, "src") == [[20, 21, EOS]]
    assert store.train.lengths[0].tolist() == [4, 2, 3]
    assert store.train.lengths[1].tolist() == [2, 5, 2]
    assert store.train.sides["src"].shards[0].flat.dtype.itemsize * 8 == bits


def test_the_digest_of_pairs_is_of_what_an_order_counts(tmp_path):
    """Of training text, and neither of validation's nor of the names of files."""
    first = Store.open(write(tmp_path / "first")).train.digest
    assert first == Store.open(write(tmp_path / "valid", valid=[[7], [8]])).train.digest
    assert first != Store.open(write(tmp_path / "turned", SRC[::-1], TGT[::-1])).train.digest

    # The first format: a shard a split, whose files had no number, and no corpora.
    folder = tmp_path / "first"
    index = json.loads((folder / "store.json").read_text())
    for name in [*index["files"]]:
        index["files"][name.replace("-00000", "")] = index["files"].pop(name)
        (folder / name).rename(folder / name.replace("-00000", ""))
    (folder / "store.json").write_text(json.dumps(index | {"format": 1}))
    assert first == Store.open(folder).train.digest


@settings(deadline=None)
@given(st.data())
def test_any_choice_from_any_shards_equals_one_by_one(data):
    token = st.integers(4, 99)
    sentences = data.draw(st.lists(st.lists(token, min_size=1, max_size=9), min_size=1))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sentences)), max_size=3)))
    bounds = itertools.pairwise([0, *cuts, len(sentences)])
    shards = [tokens(sentences[start:stop]) for start, stop in bounds]
    pairs = TokenPairs(shards, shards)
    indices = data.draw(st.lists(st.integers(0, len(sentences) - 1), max_size=12))
    side, expected = pairs.sides["src"], [[*sentences[index], EOS] for index in indices]
    assert side.gather(np.array(indices, np.int64)).tolist() == [*itertools.chain(*expected)]
    assert side.lengths(np.array(indices, np.int64)).tolist() == [len(s) for s in expected]
    assert pairs.lengths[0].tolist() == [len(sentence) + 1 for sentence in sentences]


def test_lengths_are_counted_and_the_corpora_of_a_split_known(tmp_path, monkeypatch):
    pairs = in_memory([[5], [5, 6], [7], [8]], [[5], [5], [9], [5, 6]])
    assert sorted(np.stack(pairs.length_counts()).T.tolist()) == [[2, 2, 2], [2, 3, 1], [3, 2, 1]]
    with pytest.raises(StoreError, match="2 source but 1 target sentences"):
        in_memory([[5], [6]], [[7]])
    monkeypatch.setattr(store_module, "SHARD_TOKENS", 3)
    with StoreWriter(tmp_path, vocabulary_size=100, vocabulary_digest="v") as writer:
        for name, pairs in (("news", SRC), ("empty", []), ("web", SRC[:2])):
            writer.begin_corpus("train", name, 0.5)
            for pair in pairs:
                append(writer, "train", [pair], [pair])
        append(writer, "valid", VALID, VALID)
        # Unfinished, it cannot be opened.
        with pytest.raises(StoreError, match=r"store\.json: cannot be read"):
            Store.open(tmp_path)
        writer.finish()
    store = Store.open(tmp_path)
    assert store.train.corpora == (StoredCorpus("news", 0, 3, 0.5), StoredCorpus("web", 3, 2, 0.5))
    assert len(store.train) == 5 and len(store.train.sides["src"].shards) > 2


def test_of_large_files_blocks_are_verified_and_all_bytes_if_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "_VERIFIED", 32)
    monkeypatch.setattr(store_module, "_BLOCK", 4)
    folder = write(tmp_path / "data", [[5] * 99], [[5] * 99])
    path = folder / "train-00000.src.tokens"
    content = bytearray(path.read_bytes())
    content[5] ^= 1  # between two blocks
    path.write_bytes(content)
    Store.open(folder)
    for thorough in (True, False):
        with pytest.raises(StoreError, match="its contents do not match store"):
            Store.open(folder, thorough=thorough)
        content[0] ^= 1
        path.write_bytes(content)


def test_truncated_changed_and_missing_files_are_refused_by_name(tmp_path):
    folder = write(tmp_path / "kept")
    # Advice names what holds the damage, not a link to it.
    (tmp_path / "data").symlink_to(folder)
    for name in ("train-00000.src.tokens", "train-00000.tgt.offsets", "valid-00000.tgt.tokens"):
        path = tmp_path / "data" / name
        original = path.read_bytes()
        for content, message in (
            (
                original[:-1],
                f"has {len(original) - 1} bytes, but store.json records {len(original)}: ",
            ),
            (original[:-1] + bytes([original[-1] ^ 1]), "its contents do not match store"),
            (None, "cannot be read: No such file or directory; delete "),
            (original, ""),
        ):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
            if message:
                with pytest.raises(StoreError, match=f"^{path}: {message}.*") as caught:
                    Store.open(tmp_path / "data")
                assert f"delete {folder} and run `prepare` again" in str(caught.value)
    assert Store.open(folder).digest == Store.open(write(tmp_path / "same")).digest
    with pytest.raises(StoreError, match=r"store\.json: was made with another vocabulary"):
        Store.open(folder, vocabulary_digest="w" * 64)


def test_a_damaged_index_is_refused_by_name(tmp_path):
    index = write(tmp_path / "data", size=70_000) / "store.json"
    recorded = json.loads(index.read_text())
    changes: tuple[tuple[str | dict[str, object], str], ...] = (
        ("{", "1: is not JSON"),
        ("[]", " is damaged: TypeError"),
        ('{"format": 7}', " has format 7, not 2"),
        ('{"format": 1}', " is damaged: KeyError"),
        ({"dtype": "|O"}, " is damaged: ValueError(\"dtype is '|O', not one of <u2, <u4"),
        ({"dtype": "<u2"}, "the offsets of train-00000.src do not match its tokens"),
        ({"shards": {"train": 10**9, "valid": 1}}, "KeyError('train-00001.src.tokens')"),
        ({"shards": {"train": 0, "valid": 1}}, "train holds 0 pairs, but its corpora a different"),
    )
    for change, message in changes:
        index.write_text(change if isinstance(change, str) else json.dumps(recorded | change))
        with pytest.raises(StoreError, match=f"^{index}:.*{re.escape(message)}"):
            Store.open(tmp_path / "data")
