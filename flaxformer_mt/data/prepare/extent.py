"""How much text a corpus holds, before it is read: for a progress bar, not for accounts."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from flaxformer_mt.data.corpus import Source, paths
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.data.corpus.text_files import TwoColumns, TwoFiles, zstd

_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),
    ".xz": lzma.LZMADecompressor,
    ".zst": zstd.ZstdDecompressor,
}
_HEAD = 1 << 20
_MOST = _HEAD << 4  # a megabyte of one repeated line would fill the memory


def text_bytes(source: Source) -> int | None:
    """Bytes of the corpus's lines, as `record_bytes` counts them; None if that is not known.

    Of a compressed file it is an estimate: what its first megabyte gives, times its size; not
    known where that megabyte gives more than 16.
    """
    if not isinstance(source, TwoFiles | TwoColumns):
        return None
    sizes = [_of_file(path) for path in source.files.values()]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def record_bytes(records: Sequence[tuple[bytes, ...]]) -> int:
    return sum(len(column) + 1 for columns in records for column in columns)


def _of_file(path: AnyPath) -> int | None:
    size, _ = paths.stamp(path)
    decompressor = _DECOMPRESSORS.get(path.suffix.lower())
    if decompressor is None:
        return size
    with paths.reaching(path), paths.open_binary(path) as stream:
        head = stream.read(_HEAD)
    try:
        text = decompressor().decompress(head, _MOST)
    except (zlib.error, lzma.LZMAError, zstd.ZstdError):
        return size  # Who reads it will say what is wrong with it.
    if len(text) == _MOST:
        return None
    return max(size, size * len(text) // max(1, len(head)))
