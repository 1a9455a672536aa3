"""Text files, plain or compressed, and their lines; two files with a line for each pair.

A line ends only at b"\\n": U+0085 and U+2028 occur in real sentences, and splitting there would
shift one side against the other.
"""

import bz2
import contextlib
import functools
import gzip
import io
import itertools
import lzma
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from flaxformer_mt.config.kinds import AlignedFiles
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import CorpusError, PairSource
from flaxformer_mt.files.reading import AnyPath

UTF8_BOM = b"\xef\xbb\xbf"
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    # "BZh", 1 to 9, and the first block or the end of an empty file: text may begin with less.
    **{b"BZh%d%b" % (size, b): "bzip2" for size in range(1, 10) for b in (b"1AY&", b"\x17rE8")},
    b"\x28\xb5\x2f\xfd": "zstandard",
    # Parallel zstd compressors' first frame.
    b"\x50\x2a\x4d\x18": "zstandard",
    b"PK\x03\x04": "zip",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
SUFFIXES = {".gz": "gzip", ".xz": "xz", ".zst": "zstandard", ".bz2": "bzip2", ".zip": "zip"}
# For `zstd --long=31`, which very large corpora use.
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 31}
_DAMAGE = (*(EOFError, OSError, zlib.error, lzma.LZMAError, zstd.ZstdError, zipfile.BadZipFile),)
BLOCK = 1 << 20
_PACKED_BLOCK = 1 << 16
LONGEST = 1 << 26  # bytes of a line; a longer one isn't text


# Gives a file's text, decompressed, and a file whose position shows how far it is read.
Opened = Callable[[AnyPath], contextlib.AbstractContextManager[tuple[BinaryIO, BinaryIO]]]


class LinePlace(NamedTuple):
    """Where to begin in a plain file: at line `first`, counted from 0.

    Reading begins at byte `offset`; `line_ends` lines end before it. The file must have this
    `stamp`, if there is one.
    """

    first: int = 0
    line_ends: int = 0
    offset: int = 0
    stamp: tuple[int, int] | None = None


START = LinePlace()


def open_aligned(settings: AlignedFiles, folder: str, key: str) -> PairSource:
    """Two files with a side each. Raises CorpusError."""
    names = ("src", "tgt", "pair_weights") if settings.pair_weights else ("src", "tgt")
    files = {
        name: paths.require_file(getattr(settings, name), folder, f"{key}.{name}") for name in names
    }
    return PairSource(
        files,
        str(files["src"]),
        (functools.partial(aligned, tuple(files.values())),),
        tuple,
        where="",
        is_seekable=are_plain(*files.values()),
        is_bare_text=not settings.pair_weights,
    )


def are_plain(*files: AnyPath) -> bool:
    """Whether the files, by their names, aren't compressed."""
    return not any(path.suffix.lower() in SUFFIXES for path in files)


def aligned(files: Sequence[AnyPath], *places: LinePlace) -> Iterator[tuple[bytes, ...]]:
    """The lines of files side by side, from these places on. Raises CorpusError if one has more."""
    places = places or (START,) * len(files)
    try:
        yield from zip(*map(lines, files, places), strict=True)
    except CorpusError:
        raise
    except ValueError:
        require_equal(files, [sum(1 for _ in lines(path)) for path in files])


def lines(
    path: AnyPath, place: LinePlace = START, *, opened: Opened | None = None
) -> Iterator[bytes]:
    """The lines, without their ends ("\\n" or "\\r\\n"), of a file or of what `opened` gives of it.
    Raises CorpusError."""
    read = itertools.chain.from_iterable(_blocks(path, place, opened or open_text))
    return itertools.islice(read, place.first - place.line_ends, None)


def require_equal(files: Iterable[object], counts: Sequence[int]) -> None:
    """Raises CorpusError unless all files of a corpus have equally many lines."""
    if len({*counts}) == 1:
        return
    src, tgt, *weights = (
        f"{path} has {count:,}" for path, count in zip(files, counts, strict=True)
    )
    if weights:
        raise CorpusError(
            f"{src} lines, {tgt} and {weights[0]}: sides and weights must have one line per pair"
        )
    raise CorpusError(f"{src} lines and {tgt}: both sides must have one line per pair")


def count_line_ends(
    path: AnyPath, stamp: tuple[int, int], start: int, stop: int
) -> tuple[list[int], bool]:
    """How many lines end in each `BLOCK` of a part of a plain file; whether one does at its end."""
    counts, last, size = [], b"", stamp[0]
    with paths.reaching(path), paths.open_binary(path) as stream:
        require_stamp(path, stamp)
        stream.seek(start)
        for offset in range(start, min(stop, size), BLOCK):
            last = stream.read(BLOCK)
            if len(last) != min(BLOCK, size - offset):
                raise CorpusError(f"{path}: changed while it was being read: try again")
            counts.append(last.count(b"\n"))
    return counts, last.endswith(b"\n")


def require_stamp(path: AnyPath, stamp: tuple[int, int]) -> None:
    """Raises CorpusError for a file that has changed, or is another one on this machine."""
    if not path.exists() or paths.stamp(path) != stamp:
        raise CorpusError(f"{path}: is missing or different on a machine of the cluster")


def _blocks(path: AnyPath, place: LinePlace, opened: Opened) -> Iterator[list[bytes]]:
    """The text's lines from the block on in which the place is."""
    count = place.line_ends
    begun = bytearray()  # the line that the next block continues
    try:
        with opened(path) as (stream, _):
            if place.stamp:
                require_stamp(path, place.stamp)
                stream.seek(place.offset)
            # `read1` returns the text before a fault, `read` nothing of it.
            read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
            while text := read(BLOCK):
                if count == place.line_ends:
                    _require_line_feeds(path, text)
                end = text.rfind(b"\n")
                if end < 0:
                    begun += text
                    if len(begun) > LONGEST:
                        raise too_long(path, count + 1)
                    continue
                block = _split(b"".join((begun, text[:end])), first=count == 0)
                begun = bytearray(text[end + 1 :])
                count += len(block)
                yield block
        if begun:
            yield _split(bytes(begun), first=count == 0)
    except CorpusError:
        raise
    except Exception as error:
        damaged = damage(path, error, after=count)
        if damaged is None:
            raise
        raise damaged from error


def _require_line_feeds(path: AnyPath, beginning: bytes) -> None:
    """Raises CorpusError for text whose lines end in carriage returns, as on the first Macs."""
    alone = beginning.count(b"\r") - beginning.count(b"\r\n") - beginning.endswith(b"\r")
    if alone > beginning.count(b"\n"):
        raise CorpusError(
            f"{path}:1: lines end in carriage returns (CR) alone, not in line feeds: "
            f"tr '\\r' '\\n' < {path} > NEW"
        )


def too_long(name: object, line: int) -> CorpusError:
    return CorpusError(f"{name}:{line}: no line end in {LONGEST:,} bytes: not a text file")


def damage(path: AnyPath, error: Exception, *, after: int) -> CorpusError | None:
    """The error of a file that failed `after` so many lines; None for a bug."""
    if not isinstance(error, _DAMAGE) and not paths.is_remote(path):
        return None
    return CorpusError(f"{path}: cannot be read beyond line {after:,}: {error}; download it again")


def _split(text: bytes, *, first: bool) -> list[bytes]:
    """Lines without their ends; `first` says that the file begins here."""
    if first:
        text = text.removeprefix(UTF8_BOM)
    block = text.split(b"\n")
    if b"\r" in text:
        return [line.removesuffix(b"\r") for line in block]
    return block


@contextlib.contextmanager
def readable(path: AnyPath) -> Iterator[None]:
    """Turns errors of a damaged file into CorpusErrors."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as error:
        damaged = damage(path, error, after=0)
        if damaged is None:
            raise
        raise damaged from error


@contextlib.contextmanager
def open_text(path: AnyPath) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The file's bytes, decompressed; and the file, maybe a pipe. Raises CorpusError."""
    named = SUFFIXES.get(path.suffix.lower(), "")
    if named == "zip":
        raise CorpusError(f"{path}: is a zip archive: unpack it; a corpus may be of kind=zip")
    with paths.open_binary(path) as raw:
        if raw.seekable():
            head = raw.read(8)
            raw.seek(0)
        else:
            peeking = io.BufferedReader(cast(io.RawIOBase, raw))
            head, raw = peeking.peek(8)[:8], peeking
        begins = next((form for magic, form in _MAGIC.items() if head.startswith(magic)), "")
        if begins == "UTF-16":
            raise CorpusError(f"{path}: is UTF-16 text: convert it to UTF-8")
        if named != begins:
            raise _misnamed(path, head, begins, named)
        with _decompressed(raw, named) as stream:
            yield stream, raw


def _misnamed(path: AnyPath, head: bytes, begins: str, named: str) -> CorpusError:
    """The error for a file whose head and name say different forms; "" is plain text."""
    if begins:
        contents = f"is {begins} data"
    elif head:
        contents = f"begins with {head!r}"
    else:
        contents = "is empty"
    return CorpusError(
        f"{path}: {contents}, but its name says {f'{named} data' if named else 'plain text'}: "
        "rename or replace it"
    )


def _decompressed(raw: BinaryIO, form: str) -> Any:
    if form == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if form == "xz":
        decoder = functools.partial(lzma.LZMADecompressor, format=lzma.FORMAT_XZ)
        return io.BufferedReader(_Streams(raw, decoder, padding=b"\0"), BLOCK)
    if form == "bzip2":
        return io.BufferedReader(_Streams(raw, bz2.BZ2Decompressor), BLOCK)
    if form == "zstandard":
        return zstd.ZstdFile(raw, options=_ZSTD_OPTIONS)
    return contextlib.nullcontext(raw)


class _Streams(io.RawIOBase):
    """Several streams of xz (with padding) or bzip2. Raises LZMAError and OSError for damaged ones,
    and EOFError for one that is cut off.

    `lzma.LZMAFile` and `bz2.BZ2File` ignore a damaged second stream, which would silently lose half
    a corpus.
    """

    def __init__(
        self, raw: BinaryIO, new_decoder: Callable[[], Any], *, padding: bytes = b""
    ) -> None:
        self._raw, self._new_decoder, self._padding = raw, new_decoder, padding
        self._position = 0
        self._decoder = new_decoder()

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        text = b""
        while not text:
            packed = self._packed()
            if packed is None:
                return 0
            text = self._decoder.decompress(packed, max_length=len(buffer))
        buffer[: len(text)] = text
        self._position += len(text)
        return len(text)

    def _packed(self) -> bytes | None:
        """The decoder's next input, nothing while it has text left; None after the last stream."""
        if self._decoder.eof:
            packed = self._without_padding(self._decoder.unused_data)
            while not packed:
                block = self._raw.read(_PACKED_BLOCK)
                if not block:
                    return None
                packed = self._without_padding(block)
            self._decoder = self._new_decoder()
            return packed
        if not self._decoder.needs_input:
            return b""
        packed = self._raw.read(_PACKED_BLOCK)
        if not packed:
            raise EOFError("the file ends within a stream")
        return packed

    def _without_padding(self, packed: bytes) -> bytes:
        return packed.lstrip(self._padding) if self._padding else packed
