"""The ASGI application: routes, and what wraps every request: security headers, errors without
details, and a count and a log line each."""

import asyncio
import contextlib
import hashlib
import time
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flaxformer_mt.serving import answers
from flaxformer_mt.serving.access import Origins, Refusal, admit, key_in_headers, unavailable
from flaxformer_mt.serving.answers import json_response, openapi
from flaxformer_mt.serving.requests import read_payload, read_upload
from flaxformer_mt.serving.results import SECONDS
from flaxformer_mt.serving.served_model import page_settings
from flaxformer_mt.serving.service import Service

Endpoint = Callable[[Request], Awaitable[Response]]
Answer = Callable[[Request, Mapping[str, Any], str], Awaitable[Any]]
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_PAGES = {"index.html": "/", "docs.html": "/docs"}
_DOWNLOAD = "/download_file/"
# Everything comes from this server, and nothing may embed it.
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
# Not refused when the server is full, so that operators can look.
_ALWAYS = frozenset({"/health", "/metrics"})


class _Exchange:
    """A request and its answer, which gets security headers."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        headers = Headers(scope=scope)
        self._unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        self.status = 0  # of the answer, once it begins

    async def receive(self) -> Message:
        message = await self._receive()
        self._unread = self._unread and message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
            if self._unread:
                message["headers"].append((b"connection", b"close"))
        await self._send(message)


class App:
    """Answers requests by `service`. `connections` gives the number of open ones; the server is
    `local` if only its own machine reaches it."""

    def __init__(self, service: Service, *, connections: Callable[[], int], local: bool) -> None:
        settings = service.settings
        model = service.model
        self.service = service
        self._connections = connections
        self._origins = Origins(settings.cors_origins, settings.allowed_hosts, local=local)
        document = openapi(service.reader)
        routes = [
            Route("/translate", self._post(self._translate), methods=["POST"]),
            Route("/detect", self._post(self._detect), methods=["POST"]),
            Route("/attention", self._post(self._attention), methods=["POST"]),
            Route("/translate_file", self._translate_file, methods=["POST"]),
            Route(_DOWNLOAD + "{name}", self._download),
            Route("/languages", _constant(answers.languages(model))),
            Route("/frontend/settings", _constant(page_settings(model, settings))),
            Route("/openapi.json", _constant(document)),
            Route("/spec", _constant(document)),  # LibreTranslate's address
            Route(
                "/suggest", _refused("suggestions are disabled on this server"), methods=["POST"]
            ),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            *_page_routes(),
        ]
        self.paths = frozenset(route.path for route in routes)  # metrics count others as one

        @contextlib.asynccontextmanager
        async def lifespan(_: Any) -> AsyncIterator[None]:
            service.start()
            yield
            await service.stop()

        # Redirects of trailing slashes would use the Host header.
        self._router = Router(routes, redirect_slashes=False, lifespan=lifespan)
        self._app = self._readable(self._router)

    def _readable(self, app: ASGIApp) -> ASGIApp:
        """Lets pages of the allowed origins read `app`'s answers, refusals as well."""
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
            await self._router(scope, receive, send)
            return
        scope["app"] = self  # makes the router raise errors
        start = time.perf_counter()
        exchange = _Exchange(scope, receive, send)
        metrics = self.service.metrics
        metrics.open_requests += 1
        try:
            error = await self._error(scope, exchange.receive, exchange.send)
            if error is not None and not exchange.status:
                # CORS middleware would allow a preflight.
                answer = error if scope["method"] == "OPTIONS" else self._readable(error)
                await answer(scope, receive, exchange.send)
        finally:
            metrics.open_requests -= 1
            self._record(scope, exchange.status, time.perf_counter() - start)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts and logs an answered request."""
        path = scope["path"]
        if path.startswith(_DOWNLOAD):  # whose rest is a secret
            path = _DOWNLOAD + "{name}"
        path = path if path in self.paths else "other"
        self.service.metrics.requests.labels(path, str(status)).inc()
        self.service.metrics.request_seconds.labels(path).observe(seconds)
        if self.service.settings.log != "quiet":
            self.service.say(f"{scope['method'][:10]} {path} {status} {seconds * 1e3:.0f} ms")

    async def _error(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        try:
            self._admit(scope)
            await self._app(scope, receive, send)
        except Refusal as refusal:
            self.service.metrics.refused.labels(refusal.reason).inc()
            return json_response({"error": refusal.message}, refusal.status, refusal.headers)
        except HTTPException as error:
            return json_response({"error": error.detail}, error.status_code, error.headers)
        except asyncio.CancelledError:
            # A stopping server's time for its last requests is over.
            return json_response({"error": "the server is stopping"}, 503, {"retry-after": "5"})
        except Exception as error:
            number = self.service.explain(error)
            return json_response({"error": f"internal error {number}"}, 500)
        return None

    def _admit(self, scope: Scope) -> None:
        """Raises Refusal, before anything is read."""
        most = self.service.settings.connections
        try:
            if self._connections() > most and scope["path"] not in _ALWAYS:
                raise unavailable(
                    f"more than {most} connections are open", retry_after=1, reason="connections"
                )
            self._origins.check(scope)
        except Refusal as refusal:
            # Frees the connection, and whatever wasn't read.
            refusal.headers["connection"] = "close"
            raise

    def _post(self, answer: Answer) -> Endpoint:
        settings = self.service.settings

        async def respond(request: Request) -> Response:
            has_key = self._admit_by_header(request)
            payload, kind = await read_payload(
                request, limit=settings.max_body_bytes, seconds=settings.body_seconds
            )
            if not has_key:
                admit(settings.keys, payload.get("api_key") or None)  # "": an unfilled field
            return json_response(await answer(request, payload, kind))

        return respond

    def _admit_by_header(self, request: Request) -> bool:
        """Whether the headers have a key, which is checked before anything is read. Raises
        Refusal."""
        key = key_in_headers(request.headers)
        if key is None:
            return False
        admit(self.service.settings.keys, key)
        return True

    async def _translate(self, request: Request, payload: Mapping[str, Any], kind: str) -> Any:
        task = self.service.reader.translate(payload, kind)
        if self.service.settings.log == "text":
            self.service.say(f"translate {[text.texts for text in task.texts]!r}")
        translated = await self.service.within_limits(request, self.service.translate(task))
        if task.documents:  # whose tags take a while to place
            return await asyncio.to_thread(answers.translations, task, translated)
        return answers.translations(task, translated)

    async def _translate_file(self, request: Request) -> Response:
        service, settings = self.service, self.service.settings
        has_key = self._admit_by_header(request)
        fields, upload = await read_upload(
            request, limit=settings.max_file_bytes, seconds=settings.body_seconds
        )
        if not has_key:
            admit(settings.keys, fields.get("api_key") or None)
        with service.one_file():
            file = await asyncio.to_thread(service.reader.file, fields, upload)
            translated = await service.within_limits(
                request, service.translate_file(file.task), is_file=True
            )
            content = await asyncio.to_thread(answers.translated_file, file, translated)
        token = service.results.add(file.name, content)
        # A second later, since the loop's clock may be behind.
        asyncio.get_running_loop().call_later(SECONDS + 1.0, service.results.forget_old)
        ending = file.name[file.name.rfind(".") :].lower()
        server = (settings.public_address or str(request.base_url)).rstrip("/")
        address = f"{server}{_DOWNLOAD}{token}{ending}"
        return json_response(answers.TranslateFileAnswer(translatedFileUrl=address))

    async def _download(self, request: Request) -> Response:
        token = request.path_params["name"].partition(".")[0]
        file = self.service.results.get(token)
        if file is None:
            raise Refusal(404, "there is no such file, or not any more", reason="request")
        name = urllib.parse.quote(file.name, safe="")
        headers = {
            "cache-control": "no-store",
            "content-disposition": f"attachment; filename*=UTF-8''{name}",
        }
        return Response(file.content, headers=headers, media_type="application/octet-stream")

    async def _detect(self, request: Request, payload: Mapping[str, Any], kind: str) -> Any:
        text = self.service.reader.detect(payload, kind)
        return answers.detected(text, self.service.model)

    async def _attention(self, request: Request, payload: Mapping[str, Any], kind: str) -> Any:
        form = self.service.reader.attention(payload, kind)
        attended = await self.service.within_limits(request, self.service.attend(form))
        # Not in the event loop: so many numbers take long.
        return await asyncio.to_thread(answers.attention, form, attended)

    async def _health(self, _: Request) -> Response:
        health = answers.Health(status=self.service.state)
        if health.status == "warming":
            health.done, health.of = self.service.warmed
        if health.status in ("ok", "warming"):
            return json_response(health)
        return json_response(health, 503, {"retry-after": "5"})

    async def _metrics(self, request: Request) -> Response:
        admit(self.service.settings.keys, key_in_headers(request.headers))
        kind = "text/plain; version=0.0.4; charset=utf-8"
        headers = {"cache-control": "no-store", "content-type": kind}
        return Response(self.service.metrics.text(), headers=headers)


def _constant(content: Any) -> Endpoint:
    body = answers.as_json(content)

    async def send(_: Request) -> Response:
        return json_response(body)

    return send


def _refused(message: str) -> Endpoint:
    """What LibreTranslate answers to what its operator has disabled."""

    async def refuse(_: Request) -> Response:
        raise Refusal(403, message, reason="disabled")

    return refuse


def _page_routes() -> Iterator[Route]:
    shared = {"style.css": (files("flaxformer_mt") / "theme.css").read_bytes()}
    for file in (files("flaxformer_mt.serving") / "page").iterdir():
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind:
            path = _PAGES.get(file.name, f"/page/{file.name}")
            yield Route(path, _asset(shared.get(file.name, b"") + file.read_bytes(), kind))


def _asset(body: bytes, kind: str) -> Endpoint:
    """Sent with a digest, so that browsers don't fetch it again."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": etag, "cache-control": "no-cache"}

    async def send(request: Request) -> Response:
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return send
