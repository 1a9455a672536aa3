"""An .xz file to its last byte: streams one after the other, and an error for all else."""

from __future__ import annotations

import io
import lzma
from typing import Any, BinaryIO

_BLOCK = 1 << 16


class XzStreams(io.RawIOBase):
    """What several xz streams after each other hold, with the padding that may follow each.

    `lzma.LZMAFile` takes whatever follows the first stream and does not begin like another for
    nothing: a damaged second stream would cost half a corpus without a word. Here it raises
    LZMAError, and EOFError where a stream is cut off.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        self._given = 0

    def tell(self) -> int:
        return self._given

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._decoder.eof:
                given = self._next_stream()
                if not given:
                    return 0
            else:
                given = self._raw.read(_BLOCK) if self._decoder.needs_input else b""
                if self._decoder.needs_input and not given:
                    raise EOFError("the file ends within a stream")
            text = self._decoder.decompress(given, max_length=len(buffer))
            if text:
                buffer[: len(text)] = text
                self._given += len(text)
                return len(text)

    def _next_stream(self) -> bytes:
        """Its first bytes, for a new decoder; none at the end of the file."""
        begins = self._decoder.unused_data.lstrip(b"\0")
        while not begins:
            data = self._raw.read(_BLOCK)
            if not data:
                return b""
            begins = data.lstrip(b"\0")
        self._decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
        return begins
