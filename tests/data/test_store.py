"""The token store: what goes in comes out, and nothing damaged is opened."""

from __future__ import annotations

import itertools
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.data import store as store_module
from flaxformer_mt.data.order import Part
from flaxformer_mt.data.store import Store, StoreError, TokenPairs
from flaxformer_mt.data.store_writer import StoreWriter
from flaxformer_mt.data.vocabulary import EOS
from tests.data.pairs import in_memory, listed, tokens

TRAIN_SRC = [[5, 6, 7], [8], [9, 10]]
TRAIN_TGT = [[11], [12, 13, 14, 15], [16]]
VALID = [[20, 21]]


def append(writer: StoreWriter, split: str, src: list[list[int]], tgt: list[list[int]]) -> None:
    """Adds pairs of token ids without marks."""
    sides = (tokens(src), tokens(tgt))
    writer.append(split, *itertools.chain(*((s.flat, np.diff(s.offsets)) for s in sides)))


def write(
    directory: Path, *, size: int = 100, vocabulary: str = "v" * 64, shard_tokens: int = 1 << 27
) -> Path:
    directory.mkdir(parents=True)
    writer = StoreWriter(
        directory,
        vocabulary_size=size,
        vocabulary_digest=vocabulary,
        shard_tokens=shard_tokens,
    )
    append(writer, "train", TRAIN_SRC[:2], TRAIN_TGT[:2])
    append(writer, "valid", VALID, VALID)
    append(writer, "train", TRAIN_SRC[2:], TRAIN_TGT[2:])
    append(writer, "train", [], [])
    writer.finish()
    return directory


@pytest.mark.parametrize("shard_tokens", [1, 6, 1 << 27])
@pytest.mark.parametrize(("size", "bits"), [(65_536, 16), (65_537, 32)])
def test_pairs_come_back_with_their_end_mark(
    tmp_path: Path, size: int, bits: int, shard_tokens: int
) -> None:
    directory = write(tmp_path / "data", size=size, shard_tokens=shard_tokens)
    store = Store.open(directory, vocabulary_digest="v" * 64)
    assert len(store.train) == 3 and len(store.valid) == 1
    assert listed(store.train, "src") == [[*s, EOS] for s in TRAIN_SRC]
    assert listed(store.train, "tgt") == [[*s, EOS] for s in TRAIN_TGT]
    assert listed(store.valid, "src") == [[20, 21, EOS]]
    assert store.train.src_lengths.tolist() == [4, 2, 3]
    assert store.train.tgt_lengths.tolist() == [2, 5, 2]
    assert store.train.sides["src"].shards[0].flat.dtype.itemsize * 8 == bits


def as_format_1(folder: Path) -> None:
    """A store of one shard a split under the names that files had then."""
    index = json.loads((folder / "store.json").read_text())
    files = {}
    for name, record in index["files"].items():
        files[name.replace("-00000", "")] = record
        (folder / name).rename(folder / name.replace("-00000", ""))
    index |= {"format": 1, "files": files}
    (folder / "store.json").write_text(json.dumps(index))


def test_the_digest_of_pairs_is_of_what_an_order_counts(tmp_path: Path) -> None:
    """Of training text, and neither of validation's nor of the names of files."""

    def digest(name: str, train: list[list[int]], valid: list[list[int]]) -> str:
        (tmp_path / name).mkdir()
        writer = StoreWriter(tmp_path / name, vocabulary_size=100, vocabulary_digest="v" * 64)
        append(writer, "train", train, train)
        append(writer, "valid", valid, valid)
        writer.finish()
        return Store.open(tmp_path / name).train.digest

    first = digest("first", TRAIN_SRC, VALID)
    assert first == digest("again", TRAIN_SRC, [[7], [8]])
    assert first != digest("turned", TRAIN_SRC[::-1], VALID)
    as_format_1(tmp_path / "first")
    assert first == Store.open(tmp_path / "first").train.digest


@settings(deadline=None)
@given(st.data())
def test_any_choice_from_any_shards_equals_one_by_one(data: st.DataObject) -> None:
    token = st.integers(4, 99)
    sentences = data.draw(st.lists(st.lists(token, min_size=1, max_size=9), min_size=1))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sentences)), max_size=3)))
    shards = [
        tokens(sentences[start:stop])
        for start, stop in zip([0, *cuts], [*cuts, len(sentences)], strict=True)
    ]
    pairs = TokenPairs(shards, shards)
    indices = data.draw(st.lists(st.integers(0, len(sentences) - 1), max_size=12))
    side = pairs.sides["src"]
    expected = [[*sentences[index], EOS] for index in indices]
    assert side.gather(np.array(indices, np.int64)).tolist() == [*itertools.chain(*expected)]
    assert side.lengths(np.array(indices, np.int64)).tolist() == [len(s) for s in expected]
    assert listed(pairs, "src") == [[*sentence, EOS] for sentence in sentences]
    assert pairs.src_lengths.tolist() == [len(sentence) + 1 for sentence in sentences]


def test_how_often_each_two_lengths_occur() -> None:
    pairs = in_memory([[5], [5, 6], [7], [8]], [[5], [5], [9], [5, 6]])
    found = {(int(s), int(t)): int(n) for s, t, n in zip(*pairs.length_counts(), strict=True)}
    assert found == {(2, 2): 2, (3, 2): 1, (2, 3): 1}


def test_the_corpora_of_a_split_are_known(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, vocabulary_size=100, vocabulary_digest="v", shard_tokens=3)
    for name, pairs in (("news", TRAIN_SRC), ("empty", []), ("web", TRAIN_SRC[:2])):
        writer.begin_corpus("train", name, 0.5)
        for pair in pairs:
            append(writer, "train", [pair], [pair])
    append(writer, "valid", VALID, VALID)
    writer.finish()
    store = Store.open(tmp_path)
    assert store.train.parts == (Part("news", 0, 3, 0.5), Part("web", 3, 2, 0.5))
    assert len(store.train) == 5 and len(store.train.sides["src"].shards) > 2


def test_what_is_sent_to_another_process_is_where_the_files_are(tmp_path: Path) -> None:
    store = Store.open(write(tmp_path / "data"))
    parcel = pickle.dumps(store.train)
    assert b"train-00000.src.tokens" in parcel
    assert listed(pickle.loads(parcel), "src") == listed(store.train, "src")


def test_of_large_files_blocks_are_verified_and_all_bytes_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_VERIFIED", 32)
    monkeypatch.setattr(store_module, "_BLOCK", 4)
    writer = StoreWriter(tmp_path, vocabulary_size=100, vocabulary_digest="v")
    append(writer, "train", [[5] * 99], [[5] * 99])
    append(writer, "valid", VALID, VALID)
    writer.finish()
    path = tmp_path / "train-00000.src.tokens"
    content = bytearray(path.read_bytes())
    content[5] ^= 1  # between two blocks
    path.write_bytes(content)
    Store.open(tmp_path)
    for thorough in (True, False):
        with pytest.raises(StoreError, match="its contents are not those recorded"):
            Store.open(tmp_path, thorough=thorough)
        content[0] ^= 1
        path.write_bytes(content)


def test_the_digest_tells_stores_apart(tmp_path: Path) -> None:
    first, same, other = (
        Store.open(write(tmp_path / name, vocabulary=vocabulary * 64)).digest
        for name, vocabulary in (("a", "v"), ("b", "v"), ("c", "w"))
    )
    assert first == same != other
    with pytest.raises(StoreError, match=r"store\.json: was made with another vocabulary .*vvvv"):
        Store.open(tmp_path / "a", vocabulary_digest="w" * 64)


FILES = ["train-00000.src.tokens", "train-00000.tgt.offsets", "valid-00000.tgt.tokens"]


@pytest.mark.parametrize("name", FILES)
def test_truncated_changed_and_missing_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "data") / name
    whole = path.read_bytes()
    for content, message in (
        (whole[:-1], f"has {len(whole) - 1} bytes where store.json records {len(whole)}: "),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "its contents are not those recorded"),
        (None, "cannot be read: No such file or directory; delete "),
    ):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(StoreError) as caught:
            Store.open(tmp_path / "data")
        assert str(caught.value).startswith(f"{path}: {message}")
        assert f"delete {path.parent} and run `prepare` again" in str(caught.value)


def test_advice_names_what_holds_the_damage_not_a_link_to_it(tmp_path: Path) -> None:
    path = write(tmp_path / "kept") / FILES[0]
    (tmp_path / "data").symlink_to(tmp_path / "kept")
    for content in (b"", bytes(path.stat().st_size)):
        path.write_bytes(content)
        with pytest.raises(StoreError, match=f"delete {tmp_path / 'kept'} and run `prepare`"):
            Store.open(tmp_path / "data")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (b"{", "1: is not JSON"),
        (b"[]", " is damaged: TypeError"),
        (b'{"format": 7}', " has format 7; this program reads 2"),
        (b'{"format": 1}', " is damaged: KeyError"),
        ({"dtype": "|O"}, "dtype is '|O' and none of <u2, <u4"),
        ({"dtype": "<u2"}, "the offsets of train-00000.src are not those of its tokens"),
        ({"shards": {"train": 10**9, "valid": 1}}, "KeyError('train-00001.src.tokens')"),
        ({"shards": {"train": 0, "valid": 1}}, "train holds 0 pairs, and its corpora another"),
    ],
)
def test_a_damaged_index_is_refused_by_name(
    tmp_path: Path, change: bytes | dict[str, object], message: str
) -> None:
    index = write(tmp_path / "data", size=70_000) / "store.json"
    begins = f"{index}:"
    if isinstance(change, dict):
        begins += " is damaged: "
        change = json.dumps(json.loads(index.read_text()) | change).encode()
    index.write_bytes(change)
    with pytest.raises(StoreError, match=re.escape(message)) as caught:
        Store.open(tmp_path / "data")
    assert str(caught.value).startswith(begins)


def test_an_unfinished_store_cannot_be_opened(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, vocabulary_size=9, vocabulary_digest="v") as writer:
        append(writer, "train", TRAIN_SRC, TRAIN_TGT)
    with pytest.raises(StoreError, match=r"store\.json: cannot be read"):
        Store.open(tmp_path)


def test_sides_of_different_numbers_are_refused() -> None:
    with pytest.raises(StoreError, match="2 source but 1 target sentences"):
        in_memory([[5], [6]], [[7]])
