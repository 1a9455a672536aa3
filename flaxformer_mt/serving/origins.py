"""Which requests come from other sites' pages, and by which names this server may be asked for.

A browser lets every page send requests anywhere, to a server on its user's own machine as well, and
a form needs nobody's leave (https://fetch.spec.whatwg.org/#cors-safelisted-method). It says where a
request comes from, in `Sec-Fetch-Site` (https://www.w3.org/TR/fetch-metadata/) and `Origin`, which
no page can forge; other programs send neither. A page whose name its owner lets point to this
machine (DNS rebinding) passes for one of this server's own, but for the name in `Host`.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import Scope

from flaxformer_mt.serving.refusals import Refusal, shown

_PORTS = {"http": ":80", "https": ":443"}


class Origins:
    """`allowed` are origins whose pages may use the API ("*": any), `names` what the server is
    called beside addresses and localhost: as `Host` has them, with a port or without.

    Other names are refused where there are some, and where the server is `local`: reached from its
    own machine alone.
    """

    def __init__(self, allowed: Collection[str], names: Collection[str], *, local: bool) -> None:
        self._allowed, self._names = frozenset(allowed), frozenset(names)
        self._hosts = {_name(name) for name in names}
        self._asks_for_names = local or bool(names)

    def check(self, scope: Scope) -> None:
        """Raises Refusal for a request under a name of somebody else's, or of another site's page.

        A link from another site to a page is followed.
        """
        headers = Headers(scope=scope)
        host = ",".join(headers.getlist("host")).lower()  # two are no name
        if host and self._asks_for_names and not self._is_called(_name(host)):
            raise Refusal(
                403,
                f"this server does not answer to the name '{shown(host)}'; if it should, its "
                "operator says so by --allowed-host",
                reason="host",
            )
        if self._is_foreign(scope["method"], headers, host):
            raise Refusal(
                403,
                "pages of other sites may not use this server; its operator can allow them by "
                "--cors, and a name that it has behind a proxy by --allowed-host",
                reason="origin",
            )

    def _is_called(self, name: str) -> bool:
        if name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # nobody can let an address point elsewhere

    def _is_foreign(self, method: str, headers: Headers, host: str) -> bool:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if "*" in self._allowed or origin in self._allowed:
            return False
        if site in ("same-origin", "none"):  # the latter: what its user has typed, a bookmark
            return False
        if site is None:  # no browser, or an old one, or no https
            return origin is not None and not self._is_own(origin, host)
        return method not in ("GET", "HEAD") or headers.get("sec-fetch-mode") != "navigate"

    def _is_own(self, origin: str, host: str) -> bool:
        scheme, _, place = origin.partition("://")
        return scheme in _PORTS and (
            host in (place, place + _PORTS[scheme]) or place in self._names
        )


def is_local(listener: socket.socket) -> bool:
    """Whether a listening socket can be reached from its own machine alone."""
    try:
        return ipaddress.ip_address(listener.getsockname()[0]).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """The name or address in `NAME:PORT`; nothing if it is none."""
    found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?", host)
    return (found[1] or found[2]).rstrip(".") if found else ""
