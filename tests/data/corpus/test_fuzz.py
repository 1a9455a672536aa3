"""Any bytes in two files: an error or a counted drop, and what survives stood on that line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Drops, Pair, read_pairs, text_files
from flaxformer_mt.data.normalization import is_blank
from tests.data.corpus.test_text_files import PACKERS

ODD = [b"\0", b"\r", b"\x0b", b"\x0c", b"\x1c", b"\x7f", b"\xff", b"\xc3", b"\xed\xa0\x80", b" "]
ODD += [b"\t", *(sign.encode() for sign in "\u0085\u00a0\u2028\u2029\ufeff\U0001f600")]
SIDE = st.lists(st.sampled_from([*ODD, b"word", b"W\xc3\xb6rter"]) | st.binary(max_size=4)).map(
    lambda parts: b"".join(parts).replace(b"\n", b"")
)


def is_sound(side: bytes) -> bool:
    try:
        text = side.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not is_blank(text) and re.search(r"[\x00-\x08\n-\x1f\x7f]", text) is None


@settings(
    max_examples=80,
    deadline=None,
    # The folder is the same for all examples, and each writes its files anew.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.tuples(SIDE, SIDE), max_size=8),
    st.sampled_from(sorted(PACKERS)),
    st.booleans(),
    st.sampled_from([1, 5, 1 << 20]),
)
def test_two_files(
    tmp_path: Path, rows: list[tuple[bytes, bytes]], suffix: str, ended: bool, block: int
) -> None:
    # A last line of no bytes is one only if a newline ends it.
    ended = ended or not rows or not all(rows[-1])
    sides = []
    for side, name in enumerate(("src", "tgt")):
        lines = [row[side] for row in rows]
        data = b"".join(line + b"\n" for line in lines)
        (tmp_path / f"{name}{suffix}").write_bytes(PACKERS[suffix](data if ended else data[:-1]))
        # No mark at a file's beginning is text, and no "\r" at a line's end.
        lines[:1] = [line.removeprefix(b"\xef\xbb\xbf") for line in lines[:1]]
        sides.append([line.removesuffix(b"\r") for line in lines])
    drops, corpus = Drops(), CorpusConfig(src=f"src{suffix}", tgt=f"tgt{suffix}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "_BLOCK", block)
        try:
            pairs = list(read_pairs(corpus, str(tmp_path), drops=drops))
        except CorpusError as error:
            assert not suffix and re.search("name says plain text|is UTF-16", str(error))
            return
    assert pairs == [
        Pair(line, src.decode(), tgt.decode())
        for line, (src, tgt) in enumerate(zip(*sides, strict=True), 1)
        if is_sound(src) and is_sound(tgt)
    ]
    assert len(pairs) + drops.total == len(rows)
