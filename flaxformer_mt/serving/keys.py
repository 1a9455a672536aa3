"""API keys: where requests carry them, and comparing them without telling how far they agree."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping


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


def read_keys(text: str) -> frozenset[str]:
    """One key a line; blank lines and those that begin with `#` are none."""
    lines = (line.strip() for line in text.splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
