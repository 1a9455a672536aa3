"""Around every request: headers that protect, no error that tells, one count and one log line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flaxformer_mt.serving.access import Origins
from flaxformer_mt.serving.answers import JsonResponse
from flaxformer_mt.serving.refusals import Refusal, unavailable
from flaxformer_mt.serving.service import Service

# Everything comes from this server, the tab's icon included, and nothing may embed it.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
# Not refused with the others: who looks after a server that is full wants to see it.
_ALWAYS = frozenset({"/health", "/metrics"})


class Guard:
    """The outermost application. Paths not among `paths` are counted as one.

    While more `connections` are open than may be, requests are refused; so are those of pages and
    under names that may not use the server, which is `local` if only its own machine reaches it.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        paths: Collection[str],
        *,
        connections: Callable[[], int],
        local: bool,
    ) -> None:
        settings = service.settings
        self.service, self.paths = service, frozenset(paths)
        self._app = self._readable(app)
        self._origins = Origins(settings.cors_origins, settings.allowed_hosts, local=local)
        self._connections = connections

    def _readable(self, app: ASGIApp) -> ASGIApp:
        """`app`, whose answers the pages of the allowed origins may read: refusals as well."""
        if not self.service.settings.cors_origins:
            return app
        return CORSMiddleware(
            app,
            allow_origins=self.service.settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-api-key"],
            expose_headers=["retry-after"],
            max_age=3600,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0
        headers = Headers(scope=scope)
        unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
                if unread:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        async def receive_guarded() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def answer(error: str, code: int, **more: str) -> None:
            if not status:
                broken = JsonResponse({"error": error}, code, more)
                await self._readable(broken)(scope, receive, send_guarded)

        metrics = self.service.metrics
        metrics.open_requests += 1
        try:
            await self._chosen(scope)(scope, receive_guarded, send_guarded)
        except asyncio.CancelledError:
            # The time that a stopping server gives its last requests is over.
            await answer("the server is stopping", 503, **{"retry-after": "5"})
        except Exception as error:
            await answer(f"internal error {self.service.explain(error)}", 500)
        finally:
            metrics.open_requests -= 1
            seconds = time.perf_counter() - start
            path = scope["path"] if scope["path"] in self.paths else "other"
            metrics.requests.labels(path, str(status)).inc()
            metrics.request_seconds.labels(path).observe(seconds)
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
            self.service.metrics.refused.labels(refusal.reason).inc()
            # Closed: so that it is soon one less, and with it what was not read.
            headers = {**refusal.headers, "connection": "close"}
            answer = JsonResponse({"error": refusal.message}, refusal.status, headers)
            # Whoever asks whether it may ask would be told yes.
            return answer if scope["method"] == "OPTIONS" else self._readable(answer)
        return self._app
