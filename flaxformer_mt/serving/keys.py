"""API keys: where requests carry them, and comparing them without telling how far they agree."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping

from flaxformer_mt.errors import UserError


class Keys:
    """The keys that are accepted; with none of them everybody is.

    Only digests are kept and compared, all of them each time: the time that takes depends neither
    on where a wrong key differs nor on its length.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @property
    def needed(self) -> bool:
        return bool(self._digests)

    def accept(self, key: str) -> bool:
        digest = _digest(key)
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, digest)
        return found


def key_in_headers(headers: Mapping[str, str]) -> str | None:
    """The key of `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("x-api-key")


class KeyFileError(UserError):
    """A key that clients cannot send; `line` is its number in the file."""

    def __init__(self, line: int) -> None:
        super().__init__(
            "the key has characters beyond printable ASCII, which headers cannot carry: "
            "write another one"
        )
        self.line = line


def read_keys(text: str) -> frozenset[str]:
    """One key a line; blank lines and those that begin with `#` are none. Raises KeyFileError."""
    keys = set()
    for number, line in enumerate(text.split("\n"), start=1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        if not (key.isascii() and key.isprintable()):
            raise KeyFileError(number)
        keys.add(key)
    return frozenset(keys)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
