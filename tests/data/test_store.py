"""The token store: what goes in comes out, and nothing damaged is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.data.store import Store, StoreError, StoreWriter, TokenPairs
from flaxformer_mt.data.vocabulary import EOS, PAD

TRAIN_SRC = [[5, 6, 7], [8], [9, 10]]
TRAIN_TGT = [[11], [12, 13, 14, 15], [16]]
VALID = [[20, 21]]


def write(directory: Path, *, size: int = 100, vocabulary: str = "v" * 64) -> Path:
    directory.mkdir(parents=True)
    writer = StoreWriter(directory, vocabulary_size=size, vocabulary_digest=vocabulary)
    writer.append("train", TRAIN_SRC[:2], TRAIN_TGT[:2])
    writer.append("valid", VALID, VALID)
    writer.append("train", TRAIN_SRC[2:], TRAIN_TGT[2:])
    writer.append("train", [], [])
    writer.finish()
    return directory


@pytest.mark.parametrize(("size", "bits"), [(65_536, 16), (65_537, 32)])
def test_pairs_come_back_with_their_end_mark(tmp_path: Path, size: int, bits: int) -> None:
    store = Store.open(write(tmp_path / "data", size=size), vocabulary_digest="v" * 64)
    assert len(store.train) == 3 and len(store.valid) == 1
    assert [store.train.src(i).tolist() for i in range(3)] == [[*s, EOS] for s in TRAIN_SRC]
    assert [store.train.tgt(i).tolist() for i in range(3)] == [[*s, EOS] for s in TRAIN_TGT]
    assert store.valid.src(0).tolist() == [20, 21, EOS]
    assert store.train.src_lengths.tolist() == [4, 2, 3]
    assert store.train.tgt_lengths.tolist() == [2, 5, 2]
    assert store.train.sides["src"].flat.dtype.itemsize * 8 == bits


@settings(deadline=None)
@given(st.data())
def test_gather_equals_one_by_one(data: st.DataObject) -> None:
    token = st.integers(4, 99)
    sentences = data.draw(st.lists(st.lists(token, min_size=1, max_size=9), min_size=1))
    pairs = TokenPairs.from_lists(sentences, sentences)
    indices = data.draw(st.lists(st.integers(0, len(sentences) - 1), max_size=12))
    length = data.draw(st.integers(1, 14))
    got = pairs.sides["src"].gather(np.array(indices, np.int64), length)
    assert got.shape == (len(indices), length) and got.dtype == np.int32
    for row, index in zip(got, indices, strict=True):
        sentence = [*sentences[index], EOS]
        assert row.tolist() == (sentence + [PAD] * length)[:length]


def test_the_digest_tells_stores_apart(tmp_path: Path) -> None:
    first, same, other = (
        Store.open(write(tmp_path / name, vocabulary=vocabulary * 64)).digest
        for name, vocabulary in (("a", "v"), ("b", "v"), ("c", "w"))
    )
    assert first == same != other


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "data")
    with pytest.raises(StoreError, match=r"store\.json: was made with another vocabulary .*vvvv"):
        Store.open(tmp_path / "data", vocabulary_digest="w" * 64)


FILES = [
    f"{split}.{side}.{part}"
    for split in ("train", "valid")
    for side in ("src", "tgt")
    for part in ("tokens", "offsets")
]


@pytest.mark.parametrize("name", FILES)
def test_truncated_changed_and_missing_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "data") / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(StoreError) as caught:
        Store.open(tmp_path / "data")
    assert str(caught.value).startswith(
        f"{path}: has {len(whole) - 1} bytes where store.json records {len(whole)}: "
    )
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(StoreError) as caught:
        Store.open(tmp_path / "data")
    assert str(caught.value).startswith(f"{path}: its contents are not those recorded")
    path.unlink()
    with pytest.raises(StoreError) as caught:
        Store.open(tmp_path / "data")
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"


def test_swapped_files_are_refused_by_name(tmp_path: Path) -> None:
    data = write(tmp_path / "data")
    # Two files of the same size: only the digest tells them apart.
    a, b = data / "train.src.offsets", data / "train.tgt.offsets"
    contents = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(contents)
    with pytest.raises(StoreError, match=r"train\.src\.offsets: its contents are not those"):
        Store.open(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"format": 7}', "has format 7; this program reads 1"),
        (b'{"format": 1}', "is damaged: KeyError"),
    ],
)
def test_a_damaged_index_is_refused_by_name(tmp_path: Path, text: bytes, message: str) -> None:
    index = write(tmp_path / "data") / "store.json"
    index.write_bytes(text)
    with pytest.raises(StoreError, match=message) as caught:
        Store.open(tmp_path / "data")
    assert str(caught.value).startswith(f"{index}: ")


def test_an_unfinished_store_cannot_be_opened(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, vocabulary_size=9, vocabulary_digest="v")
    writer.append("train", TRAIN_SRC, TRAIN_TGT)
    writer.close()
    with pytest.raises(StoreError, match=r"store\.json: cannot be read"):
        Store.open(tmp_path)


def test_sides_of_different_numbers_are_refused() -> None:
    with pytest.raises(StoreError, match="2 source but 1 target sentences"):
        TokenPairs.from_lists([[5], [6]], [[7]])
