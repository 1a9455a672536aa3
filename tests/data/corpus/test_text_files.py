"""Text files: any bytes are pairs, errors or counted drops, and alignment never shifts."""

import bz2
import functools
import gzip
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Drops, Pair, open_source, read_pairs, text_files
from flaxformer_mt.data.corpus.text_files import zstd
from flaxformer_mt.data.normalization import is_blank

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": functools.partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1}),
}
PACKED = pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])


def two_files(folder: Path, src: bytes, tgt: bytes, suffix: str = "") -> CorpusConfig:
    (folder / f"a.en{suffix}").write_bytes(PACKERS[suffix](src))
    (folder / f"a.de{suffix}").write_bytes(PACKERS[suffix](tgt))
    return CorpusConfig(name="a", src=f"a.en{suffix}", tgt=f"a.de{suffix}")


def one_file(folder: Path, packed: bytes, suffix: str = "") -> CorpusConfig:
    (folder / f"a.tsv{suffix}").write_bytes(packed)
    return CorpusConfig(name="a", kind="tsv", path=f"a.tsv{suffix}")


def read(corpus: CorpusConfig, folder: Path) -> tuple[list[Pair], Drops]:
    drops = Drops()
    return list(read_pairs(corpus, str(folder), drops=drops)), drops


def test_defects_are_counted_with_file_and_line(tmp_path):
    src = b"good\nbad \xff byte\n\x00nul\n\xe2\x80\x8b\nx\nvertical\x0btab\nlone\rreturn\nend\n"
    tgt = b"gut\nb\nc\nd\n\ny\nz\nEnde\n"
    pairs, drops = read(two_files(tmp_path, src, tgt), tmp_path)
    assert pairs == [Pair(1, "good", "gut"), Pair(8, "end", "Ende")]
    assert drops.counts == {"invalid UTF-8": 1, "control character": 3, "empty side": 2}
    a, b = tmp_path / "a.en", tmp_path / "a.de"
    assert [str(example) for example in drops.examples] == [
        f"{a}:2: invalid UTF-8: byte 0xFF at byte 5",
        f"{a}:3: control character: U+0000 at byte 1",
        f"{a}:4: empty side: the source is blank",
        f"{b}:5: empty side: the target is blank",
        f"{a}:6: control character: U+000B at byte 9",
        f"{a}:7: control character: U+000D at byte 5",
    ]
    assert drops.describe() == "1 invalid UTF-8, 3 control character, 2 empty side"
    data = b"a\tb\nc\nd\te\tf\ng\t\xc3\nh\ti\n" + b"\n" * 6
    pairs, drops = read(one_file(tmp_path, data), tmp_path)
    assert pairs == [Pair(1, "a", "b"), Pair(5, "h", "i")]
    file = tmp_path / "a.tsv"
    zero = [f"{file}:{n}: not two columns: 0 tabs where there should be one" for n in (2, 6, 7, 8)]
    # Counts are of all, examples few.
    assert drops.counts == {"not two columns": 8, "invalid UTF-8": 1}
    assert [str(example) for example in drops.examples] == [
        zero[0],
        f"{file}:3: not two columns: 2 tabs where there should be one",
        f"{file}:4: invalid UTF-8: byte 0xC3 at byte 1 of the target column",
        *zero[1:],
    ]


def test_without_a_counter_a_defect_is_an_error(tmp_path):
    corpus = two_files(tmp_path, b"a\n\n", b"b\nc\n")
    with pytest.raises(CorpusError) as caught:
        list(read_pairs(corpus, str(tmp_path), key="data.test.a"))
    assert str(caught.value) == (
        f"{tmp_path / 'a.en'}:2: empty side: the source is blank (data.test.a); this corpus may "
        "not skip pairs: correct the line"
    )
    for src, tgt, counts in ((b"a\n" * 7, b"b\n" * 4, (7, 4)), (b"a\n" * 2, b"b\n" * 3, (2, 3))):
        with pytest.raises(CorpusError) as caught:
            read(two_files(tmp_path, src, tgt, ".xz"), tmp_path)
        assert str(caught.value) == (
            f"{tmp_path / 'a.en.xz'} has {counts[0]} lines and {tmp_path / 'a.de.xz'} has "
            f"{counts[1]}: both sides must have one line per pair"
        )


def test_missing_files_name_the_setting(tmp_path):
    corpus = CorpusConfig(name="a", src="no.en", tgt="no.de")
    with pytest.raises(CorpusError) as caught:
        list(read_pairs(corpus, str(tmp_path), key="data.train.a"))
    assert str(caught.value) == (
        f"data.train.a.src: {tmp_path / 'no.en'} does not exist; set data.train.a.src, or "
        f"data.folder, where relative paths start (now '{tmp_path}')"
    )
    (tmp_path / "no.en").mkdir()
    with pytest.raises(CorpusError, match=r"data\.train\.a\.src: .* is not a file"):
        list(read_pairs(corpus, str(tmp_path), key="data.train.a"))
    os.mkfifo(tmp_path / "pipe")
    message = r"data\.valid\.path: .*/pipe is a pipe or a device: write"
    with pytest.raises(CorpusError, match=message):
        list(read_pairs(CorpusConfig(kind="tsv", path="pipe"), str(tmp_path), key="data.valid"))


@pytest.mark.parametrize(
    ("folder", "name"), [("~", "a"), ("", "~/a"), ("/nowhere", "{tmp_path}/a")]
)
def test_paths_are_relative_to_the_folder_unless_absolute(tmp_path, monkeypatch, folder, name):
    monkeypatch.setenv("HOME", str(tmp_path))
    two_files(tmp_path, b"a\n", b"b\n")
    name = name.format(tmp_path=tmp_path)
    corpus = CorpusConfig(name="a", src=f"{name}.en", tgt=f"{name}.de")
    assert open_source(corpus, folder, download=False).files == {
        "src": tmp_path / "a.en",
        "tgt": tmp_path / "a.de",
    }


@PACKED
def test_truncated_archives_are_errors_that_tell_the_line(tmp_path, suffix):
    # Text that does not pack to nothing, so that half of the archive holds some of the lines.
    text = b"".join(b"line %d of many\n" % (i * 7919 % 100_003) for i in range(120_000))
    corpus = two_files(tmp_path, text, text, suffix)
    path = tmp_path / f"a.en{suffix}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    # What the half holds was read, though it is less than is read at a time.
    message = rf"^{path}: cannot be read beyond line \d?\d,\d+: .*; download it again$"
    with pytest.raises(CorpusError, match=message):
        read(corpus, tmp_path)


def test_a_file_must_be_what_its_name_says(tmp_path):
    (tmp_path / "a.de").write_bytes(b"b\n")
    for name, data, message in (
        ("a.en.gz", b"plain text\n", "begins with b'plain te', but its name says gzip data"),
        ("a.en.gz", b"", "is empty, but its name says gzip data"),
        ("a.en.xz", gzip.compress(b"a\n", mtime=0), "is gzip data, but its name says xz data"),
        ("a.en", gzip.compress(b"a\n", mtime=0), "is gzip data, but its name says plain text"),
        ("a.en", zstd.compress(b"a\n"), "is zstandard data, but its name says plain text"),
        ("a.en.bz2", b"", "is empty, but its name says bzip2 data"),
        ("a.en", bz2.compress(b"a\n"), "is bzip2 data, but its name says plain text"),
        ("a.en.zip", b"", "is a zip archive: unpack it; a corpus may be of kind=zip"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CorpusError, match=f"^{tmp_path / name}: {message}"):
            read(CorpusConfig(name="a", src=name, tgt="a.de"), tmp_path)


@PACKED
def test_archives_after_each_other_are_read_to_the_last_byte(tmp_path, suffix):
    first, second = (PACKERS[suffix](b"%d\tand so on\n" % number * 500) for number in (1, 2))
    assert len(read(one_file(tmp_path, first + second, suffix), tmp_path)[0]) == 1000
    for behind in (bytes([second[0] ^ 1]) + second[1:], second[: len(second) // 2], b"1\t2\n" * 30):
        with pytest.raises(CorpusError, match=r"beyond line \d+: .*; download it again"):
            read(one_file(tmp_path, first + behind, suffix), tmp_path)


def test_archives_may_be_as_other_programs_write_them(tmp_path):
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    # A frame that holds no text, as parallel compressors write first.
    skipped = b"\x50\x2a\x4d\x18\4\0\0\0size"
    text = b"1\t2\n"
    for suffix, packed in (
        (".xz", lzma.compress(text) + bytes(8) + lzma.compress(text) + bytes(4)),  # padded
        (".zst", skipped + zstd.compress(text + b"1") + zstd.compress(b"\t2\n")),
        (".zst", packer.compress(text * 2) + packer.flush()),
    ):
        pairs, _ = read(one_file(tmp_path, packed, suffix), tmp_path)
        assert [pair[1:] for pair in pairs] == [("1", "2")] * 2


def test_what_is_no_text_does_not_fill_the_memory(tmp_path):
    with open(tmp_path / "a", "wb") as file:
        file.write(b"short\n")
        file.truncate(10 * text_files.LONGEST)
    lines = text_files.lines(tmp_path / "a")
    assert next(lines) == b"short"
    with pytest.raises(CorpusError, match="a:2: no line end in 67,108,864 bytes"):
        next(lines)


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
def test_two_files(tmp_path, rows, suffix, ended, block):
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
        patch.setattr(text_files, "BLOCK", block)
        try:
            pairs = list(read_pairs(corpus, str(tmp_path), drops=drops))
        except CorpusError as error:
            if "lines end in carriage returns" in str(error):
                assert any(b"\r" in line for row in rows for line in row)
            else:
                assert not suffix and re.search("name says plain text|is UTF-16", str(error))
            return
    numbered = enumerate(zip(*sides, strict=True), 1)
    sound = [(number, *pair) for number, pair in numbered if all(map(is_sound, pair))]
    assert pairs == [Pair(number, src.decode(), tgt.decode()) for number, src, tgt in sound]
    assert len(pairs) + drops.total == len(rows)
