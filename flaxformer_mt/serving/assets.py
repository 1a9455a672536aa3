"""The page's files: read once, sent with a digest so that browsers ask and do not fetch again."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclasses.dataclass(frozen=True)
class Asset:
    body: bytes
    kind: str
    etag: str

    def response(self, request: Request) -> Response:
        headers = {"etag": self.etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == self.etag:
            return Response(status_code=304, headers=headers)
        return Response(self.body, media_type=self.kind, headers=headers)


def load_assets() -> Mapping[str, Asset]:
    """Every file of `page/` by its name."""
    folder = files("flaxformer_mt.serving") / "page"
    assets = {}
    for file in folder.iterdir():
        kind = _KINDS.get("." + file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:32]
            assets[file.name] = Asset(body, kind, f'"{digest}"')
    return assets
