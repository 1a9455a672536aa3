"""Around every request: headers that protect, no error that tells, one count and one log line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flaxformer_mt.serving.answers import as_json
from flaxformer_mt.serving.origins import Origins
from flaxformer_mt.serving.refusals import Refusal, unavailable
from flaxformer_mt.serving.service import Service

# Everything comes from this server, the tab's icon included, and nothing may embed it.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


# Not refused with the others: who looks after a server that is full wants to see it.
_ALWAYS = frozenset({"/health", "/metrics"})


class JsonResponse(Response):
    """UTF-8 JSON, never cached: translations are nobody else's. Bytes are JSON already."""

    media_type = "application/json"

    def __init__(
        self, content: Any, status_code: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(content, status_code, {"cache-control": "no-store", **(headers or {})})

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else as_json(content)


class Guard:
    """The outermost application. Paths not among `paths` are counted as one.

    `readable` makes of an application one whose answers other origins' pages may read: refusals
    are such answers, too.

    While more `connections` are open than may be, requests are refused; so are those that `origins`
    has no place for.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        paths: Collection[str],
        *,
        origins: Origins,
        readable: Callable[[ASGIApp], ASGIApp],
        connections: Callable[[], int] | None = None,
    ) -> None:
        self.app, self.service, self.paths = readable(app), service, frozenset(paths)
        self._readable = readable
        self._origins = origins
        self._connections = connections or (lambda: service.metrics.open_requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
                if unread:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        headers = Headers(scope=scope)
        unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"

        async def receive_guarded() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        metrics = self.service.metrics
        metrics.open_requests += 1
        try:
            try:
                await self._chosen(scope)(scope, receive_guarded, send_guarded)
            except asyncio.CancelledError:
                # The time that a stopping server gives its last requests is over.
                if not status:
                    late = JsonResponse(
                        {"error": "the server is stopping"}, 503, {"retry-after": "5"}
                    )
                    await self._readable(late)(scope, receive, send_guarded)
            except Exception as error:
                number = self.service.explain(error)
                if not status:
                    broken = JsonResponse({"error": f"internal error {number}"}, 500)
                    await self._readable(broken)(scope, receive, send_guarded)
        finally:
            metrics.open_requests -= 1
            seconds = time.perf_counter() - start
            path = scope["path"] if scope["path"] in self.paths else "other"
            metrics.requests.add(path=path, status=str(status))
            metrics.request_seconds.observe(seconds, path=path)
            if self.service.settings.log != "quiet":
                self.service.say(f"{scope['method'][:10]} {path} {status} {seconds * 1e3:.0f} ms")

    def _chosen(self, scope: Scope) -> ASGIApp:
        """The application, or a refusal, for which nothing of the request is read."""
        most = self.service.settings.connections
        try:
            if self._connections() > most and scope["path"] not in _ALWAYS:
                full = f"more than {most} connections are open"
                raise unavailable(full, retry_after=1, reason="connections")
            self._origins.check(scope)
        except Refusal as refusal:
            self.service.metrics.refused.add(reason=refusal.reason)
            # Closed: so that it is soon one less, and with it what was not read.
            headers = {**refusal.headers, "connection": "close"}
            answer = JsonResponse({"error": refusal.message}, refusal.status, headers)
            # Whoever asks whether it may ask would be told yes.
            return answer if scope["method"] == "OPTIONS" else self._readable(answer)
        return self.app
