"""The ASGI application: which address does what."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flaxformer_mt.serving import answers
from flaxformer_mt.serving.access import Keys, key_in_headers
from flaxformer_mt.serving.answers import JsonResponse
from flaxformer_mt.serving.guard import Guard
from flaxformer_mt.serving.model_info import Model, ServedTranslator, page_settings
from flaxformer_mt.serving.openapi import openapi
from flaxformer_mt.serving.refusals import Refusal
from flaxformer_mt.serving.requests import read_payload
from flaxformer_mt.serving.service import Service
from flaxformer_mt.serving.settings import ServerSettings

Endpoint = Callable[[Request], Awaitable[Response]]
Answer = Callable[[Request, Mapping[str, Any], str], Awaitable[Any]]
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_PAGES = {"index.html": "/", "docs.html": "/docs"}


def create_app(
    translator: ServedTranslator,
    model: Model,
    settings: ServerSettings,
    *,
    say: Callable[[str], None],
    failed: Callable[[BaseException], None],
    connections: Callable[[], int],
    local: bool,
) -> Guard:
    """An ASGI application that translates with `translator`, in one thread, from its lifespan on.

    `say` gets lines for the operator, `failed` the reason if the model cannot be made ready or its
    thread ends. `connections` tells how many are open, `local` that only this machine reaches it.
    """
    service = Service(translator, model, settings, say=say, failed=failed)
    endpoints = Endpoints(service)
    routes = [
        Route("/translate", endpoints.post(endpoints.translate), methods=["POST"]),
        Route("/detect", endpoints.post(endpoints.detect), methods=["POST"]),
        Route("/attention", endpoints.post(endpoints.attention), methods=["POST"]),
        Route("/languages", _constant(answers.languages(model))),
        Route("/frontend/settings", _constant(page_settings(model, settings))),
        Route("/openapi.json", _constant(openapi(service.reader))),
        Route("/health", endpoints.health),
        Route("/metrics", endpoints.metrics),
        *_page(),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    handlers = {HTTPException: _http_error, Refusal: endpoints.refused}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    # A trailing slash would otherwise be redirected, to an address made of the Host header.
    app.router.redirect_slashes = False
    paths = {route.path for route in routes}
    return Guard(app, service, paths, connections=connections, local=local)


class Endpoints:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.keys = Keys(service.settings.keys)

    def post(self, answer: Answer) -> Endpoint:
        """An endpoint that reads a body, bounded; whatever happens becomes an answer."""
        settings = self.service.settings

        async def respond(request: Request) -> Response:
            try:
                key = key_in_headers(request.headers)
                if key is not None:  # before anything is read
                    self.keys.admit(key)
                payload, kind = await read_payload(
                    request, limit=settings.max_body_bytes, seconds=settings.body_seconds
                )
                if key is None:
                    self.keys.admit(payload.get("api_key"))
                return JsonResponse(await answer(request, payload, kind))
            except Refusal:
                raise
            except Exception as error:
                number = self.service.explain(error)
                return JsonResponse({"error": f"internal error {number}"}, 500)

        return respond

    async def translate(self, request: Request, payload: Mapping[str, Any], kind: str) -> Any:
        task = self.service.reader.translate(payload, kind)
        if self.service.settings.log == "text":
            self.service.say(f"translate {[text.texts for text in task.texts]!r}")
        found = await self.service.within_limits(request, self.service.translate(task))
        return answers.translations(task, found, self.service.model.src_lang)

    async def detect(self, request: Request, payload: Mapping[str, Any], kind: str) -> Any:
        text = self.service.reader.detect(payload, kind)
        return [answers.detected(text, self.service.model.src_lang)]

    async def attention(self, request: Request, payload: Mapping[str, Any], kind: str) -> Any:
        asked = self.service.reader.attention(payload, kind)
        found = await self.service.within_limits(request, self.service.attend(asked))
        # Not in the event loop: rounding and writing so many numbers takes long.
        return await asyncio.to_thread(answers.attention, asked, found)

    async def health(self, _: Request) -> Response:
        health = answers.Health(status=self.service.state)
        if health.status == "starting":
            health.done, health.of = self.service.warm
        if health.status == "ok":
            return JsonResponse(health)
        return JsonResponse(health, 503, {"retry-after": "5"})

    async def metrics(self, request: Request) -> Response:
        self.keys.admit(key_in_headers(request.headers))
        kind = "text/plain; version=0.0.4; charset=utf-8"
        headers = {"cache-control": "no-store"}
        return Response(self.service.metrics.text(), media_type=kind, headers=headers)

    async def refused(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        self.service.metrics.refused.labels(error.reason).inc()
        return JsonResponse({"error": error.message}, error.status, error.headers)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JsonResponse({"error": error.detail}, error.status_code, dict(error.headers or {}))


def _constant(content: Any) -> Endpoint:
    body = answers.as_json(content)

    async def send(_: Request) -> Response:
        return JsonResponse(body)

    return send


def _page() -> list[Route]:
    """Every file of `page/`."""
    routes = []
    for file in (files("flaxformer_mt.serving") / "page").iterdir():
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            address = _PAGES.get(file.name, f"/page/{file.name}")
            routes.append(Route(address, _asset(file.read_bytes(), kind)))
    return routes


def _asset(body: bytes, kind: str) -> Endpoint:
    """Sent with a digest, so that browsers ask and do not fetch again."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": etag, "cache-control": "no-cache"}

    async def send(request: Request) -> Response:
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return send
