"""Any bytes in any reader: an error or a counted drop, and what survives stood on that line."""

from __future__ import annotations

import gzip
import lzma
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Drops, Pair, read_pairs, text_files
from flaxformer_mt.data.corpus.text_files import zstd
from flaxformer_mt.data.normalization import is_blank

CHECKED = {zstd.CompressionParameter.checksum_flag: 1}
PACKERS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstd.compress(data, options=CHECKED),
}
ODD = [b"\0", b"\r", b"\x0b", b"\x0c", b"\x1c", b"\x7f", b"\xff", b"\xc3", b"\xed\xa0\x80", b" "]
ODD += [b"\t", *(sign.encode() for sign in "\u0085\u00a0\u2028\u2029\ufeff\U0001f600")]
SIDE = st.lists(st.sampled_from([*ODD, b"word", b"W\xc3\xb6rter"]) | st.binary(max_size=4)).map(
    lambda parts: b"".join(parts).replace(b"\n", b"")
)
ROWS = st.lists(st.tuples(SIDE, SIDE), max_size=8)
WORDS = [(b"line %d" % number, b"Zeile %d" % (number * 7919)) for number in range(400)]

fuzzed = settings(
    max_examples=80,
    deadline=None,
    # The folder is the same for all examples, and each writes its files anew.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def read(folder: Path, corpus: CorpusConfig) -> tuple[list[Pair], Drops]:
    drops = Drops()
    return list(read_pairs(corpus, str(folder), drops=drops)), drops


def is_sound(side: bytes) -> bool:
    try:
        text = side.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not is_blank(text) and re.search(r"[\x00-\x08\n-\x1f\x7f]", text) is None


def expected_pairs(rows: list[tuple[bytes, bytes]]) -> list[Pair]:
    return [
        Pair(line, src.decode(), tgt.decode())
        for line, (src, tgt) in enumerate(rows, 1)
        if is_sound(src) and is_sound(tgt)
    ]


def of_lines(sides: list[bytes]) -> list[bytes]:
    """What a file of these lines says: no mark at its beginning, and no "\\r" at a line's end."""
    if sides:
        sides = [sides[0].removeprefix(b"\xef\xbb\xbf"), *sides[1:]]
    return [side.removesuffix(b"\r") for side in sides]


@fuzzed
@given(ROWS, st.sampled_from(sorted(PACKERS)), st.booleans(), st.sampled_from([1, 5, 1 << 20]))
def test_two_files(
    tmp_path: Path, rows: list[tuple[bytes, bytes]], suffix: str, ended: bool, block: int
) -> None:
    # A last line of no bytes is one only if a newline ends it.
    ended = ended or not rows or not all(rows[-1])
    sides = [[row[side] for row in rows] for side in (0, 1)]
    for name, lines in zip(("src", "tgt"), sides, strict=True):
        data = b"".join(line + b"\n" for line in lines)
        data = data if ended else data[:-1]
        (tmp_path / f"{name}{suffix}").write_bytes(PACKERS[suffix](data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "_BLOCK", block)
        try:
            pairs, drops = read(tmp_path, CorpusConfig(src=f"src{suffix}", tgt=f"tgt{suffix}"))
        except CorpusError as error:
            assert not suffix and re.search("name says plain text|is UTF-16", str(error))
            return
    rows = list(zip(*map(of_lines, sides), strict=True))
    assert pairs == expected_pairs(rows)
    assert len(pairs) + drops.total == len(rows)


def damaged(data: bytes, where: float, flip: int | None) -> bytes:
    at = int(where * len(data))
    return data[:at] if flip is None else data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]


@pytest.mark.extended
@settings(fuzzed, max_examples=120)
@given(
    st.sampled_from([".gz", ".xz", ".zst"]),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.integers(1, 255),
)
def test_damaged_packed_files(tmp_path: Path, suffix: str, where: float, flip: int | None) -> None:
    """Cut anywhere, or with any byte changed: what is given before the error was written so."""
    for name, side in (("src", 0), ("tgt", 1)):
        text = b"".join(row[side] + b"\n" for row in WORDS)
        (tmp_path / f"{name}{suffix}").write_bytes(PACKERS[suffix](text))
    broken = tmp_path / f"tgt{suffix}"
    broken.write_bytes(damaged(broken.read_bytes(), where, flip))
    corpus = CorpusConfig(src=f"src{suffix}", tgt=f"tgt{suffix}")
    pairs, failed = [], False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "_BLOCK", 100)
        try:
            for pair in read_pairs(corpus, str(tmp_path), drops=Drops()):
                pairs.append(pair)
        except CorpusError as error:
            failed = True
            assert str(broken) in str(error)
    if flip is None:
        assert failed
    if not failed:  # A byte that says nothing, such as the time in a gzip file's head.
        assert pairs == expected_pairs(WORDS)
    # Flipped text is noticed where its checksum stands: at the end of what it covers.
    elif flip is None:
        assert pairs == expected_pairs(WORDS)[: len(pairs)]
