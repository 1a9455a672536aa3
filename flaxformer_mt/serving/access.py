"""Who may use the server: API keys, other sites' pages, host names.

A browser lets any page send requests anywhere, also to a server on its user's machine, and a form
needs no permission (https://fetch.spec.whatwg.org/#cors-safelisted-method). The browser says where
a request comes from in `Sec-Fetch-Site` (https://www.w3.org/TR/fetch-metadata/) and `Origin`, which
pages can't forge; other programs send neither. A page whose owner points its name to this machine
(DNS rebinding) looks like this server's own, except for the name in `Host`.
"""

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Collection, Mapping

from starlette.datastructures import Headers
from starlette.types import Scope

_PORTS = {"http": ":80", "https": ":443"}


class Refusal(Exception):
    """A request that gets an error: its status, a message for the client, headers.

    Messages repeat little of a request: keys and beginnings of sentences as `shown`, and terms, of
    at most 60 characters. `reason` is a word for metrics.
    """

    def __init__(self, status: int, message: str, *, reason: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def bad_request(message: str) -> Refusal:
    return Refusal(400, message, reason="request")


def too_large(message: str) -> Refusal:
    return Refusal(413, message, reason="size")


def unavailable(message: str, *, retry_after: int, reason: str) -> Refusal:
    return Refusal(503, message, reason=reason, retry_after=str(retry_after))


def shown(text: str) -> str:
    """A client's text for a message: printable, at most 40 characters."""
    printable = "".join(
        character if character.isprintable() else "\ufffd" for character in text[:40]
    )
    return printable + ("…" if len(text) > 40 else "")


def admit(keys: Collection[str], key: object) -> None:
    """Raises Refusal unless `key` is one of `keys`, or there are none.

    All digests are compared, so the time depends neither on where a wrong key differs nor on its
    length.
    """
    if not keys:
        return
    if key is None:
        raise Refusal(
            401,
            "an API key is needed: 'Authorization: Bearer KEY', or 'api_key' in the body",
            reason="key",
            www_authenticate="Bearer",
        )
    digest = _digest(key) if isinstance(key, str) else b""
    if not sum(hmac.compare_digest(_digest(known), digest) for known in keys):
        raise Refusal(403, "the API key is not valid", reason="key")


def key_in_headers(headers: Mapping[str, str]) -> str | None:
    """The key of `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("x-api-key")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class Origins:
    """`allowed` are origins whose pages may use the API ("*": any); `names` are the server's names
    besides addresses and localhost. Others are refused if `names` are given, or if only its own
    machine reaches the server (`local`)."""

    def __init__(self, allowed: Collection[str], names: Collection[str], *, local: bool) -> None:
        self._allowed = frozenset(allowed)
        self._names = frozenset(names)
        self._hosts = {_name(name) for name in names}
        self._asks_for_names = local or bool(names)

    def check(self, scope: Scope) -> None:
        """Raises Refusal for another host name, or another site's page except by a link."""
        headers = Headers(scope=scope)
        host = ",".join(headers.getlist("host")).lower()  # several hosts: not a valid name
        if host and self._asks_for_names and not self._is_called(_name(host)):
            raise Refusal(
                403,
                f"this server is not called '{shown(host)}'; its operator can allow it: "
                "--allowed-host",
                reason="host",
            )
        if self._is_foreign(scope["method"], headers, host):
            raise Refusal(
                403,
                "pages from other sites may not use this server; its operator can allow them: "
                "--cors",
                reason="origin",
            )

    def _is_called(self, name: str) -> bool:
        if name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # addresses can't be rebound

    def _is_foreign(self, method: str, headers: Headers, host: str) -> bool:
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site")
        if "*" in self._allowed or origin in self._allowed:
            return False
        if site in ("same-origin", "none"):  # "none": typed by the user, or a bookmark
            return False
        if site is not None:
            return method not in ("GET", "HEAD") or headers.get("sec-fetch-mode") != "navigate"
        if origin is None:  # not a browser
            return False
        # An old browser, or no https.
        scheme, _, origin_host = origin.partition("://")
        if scheme not in _PORTS:
            return True
        return host not in (origin_host, origin_host + _PORTS[scheme]) and (
            origin_host not in self._names
        )


def is_local(listener: socket.socket) -> bool:
    """Whether only its own machine can reach a listening socket."""
    try:
        return ipaddress.ip_address(listener.getsockname()[0]).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """The name or address in `NAME:PORT`; empty if invalid."""
    match = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?", host)
    return (match[1] or match[2]).rstrip(".") if match else ""
