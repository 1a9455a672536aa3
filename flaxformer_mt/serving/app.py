"""The ASGI application: which address does what."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from flaxformer_mt.serving import answers
from flaxformer_mt.serving.assets import load_assets
from flaxformer_mt.serving.bodies import FORM, read_payload
from flaxformer_mt.serving.guard import Guard, JsonResponse
from flaxformer_mt.serving.keys import Keys, key_in_headers
from flaxformer_mt.serving.model_info import Model, ServedTranslator, language_name, page_settings
from flaxformer_mt.serving.openapi import openapi
from flaxformer_mt.serving.origins import Origins
from flaxformer_mt.serving.refusals import Refusal
from flaxformer_mt.serving.service import Service
from flaxformer_mt.serving.settings import ServerSettings

Answer = Callable[[Request, Mapping[str, Any], bool], Awaitable[Any]]


def create_app(
    translator: ServedTranslator,
    model: Model,
    settings: ServerSettings,
    *,
    say: Callable[[str], None],
    failed: Callable[[BaseException], None] = lambda error: None,
    connections: Callable[[], int] | None = None,
    local: bool = False,
) -> Guard:
    """An ASGI application that translates with `translator`, in one thread, from its lifespan on.

    `say` gets lines for the operator, `failed` the reason if the model cannot be made ready or its
    thread ends. `connections` tells how many are open; without it requests count as such. `local`
    says that only this machine can reach it.
    """
    service = Service(translator, model, settings, say=say, failed=failed)
    endpoints = Endpoints(service)
    assets = load_assets()
    document = openapi(model, settings)

    def asset(name: str) -> Callable[[Request], Awaitable[Response]]:
        async def send(request: Request) -> Response:
            return assets[name].response(request)

        return send

    async def document_of(_: Request) -> Response:
        return JsonResponse(document)

    routes = [
        Route("/translate", endpoints.post(endpoints.translate), methods=["POST"]),
        Route("/detect", endpoints.post(endpoints.detect), methods=["POST"]),
        Route("/attention", endpoints.post(endpoints.attention), methods=["POST"]),
        Route("/languages", endpoints.languages),
        Route("/frontend/settings", endpoints.settings),
        Route("/health", endpoints.health),
        Route("/metrics", endpoints.metrics),
        Route("/openapi.json", document_of),
        Route("/", asset("index.html")),
        Route("/docs", asset("docs.html")),
        *(Route(f"/page/{name}", asset(name)) for name in assets if not name.endswith(".html")),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _http_error}
    )
    # A trailing slash would otherwise be redirected, to an address made of the Host header.
    app.router.redirect_slashes = False
    paths = {route.path for route in routes}
    origins = Origins(settings.cors_origins, settings.allowed_hosts, local=local)
    return Guard(
        app,
        service,
        paths,
        origins=origins,
        readable=functools.partial(_readable, settings=settings),
        connections=connections,
    )


class Endpoints:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.keys = Keys(service.settings.keys)

    def post(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that reads a body, bounded; whatever happens becomes an answer."""
        settings = self.service.settings

        async def respond(request: Request) -> Response:
            try:
                key = key_in_headers(request.headers)
                if key is not None:  # before anything is read
                    self._admit(key)
                payload, kind = await read_payload(
                    request, limit=settings.max_body_bytes, seconds=settings.body_seconds
                )
                if key is None:
                    self._admit(payload.get("api_key"))
                return JsonResponse(await answer(request, payload, kind == FORM))
            except Refusal as refusal:
                return self._refused(refusal)
            except Exception as error:
                number = self.service.explain(error)
                return JsonResponse({"error": f"internal error {number}"}, 500)

        return respond

    async def translate(self, request: Request, payload: Mapping[str, Any], form: bool) -> Any:
        asked = self.service.reader.translate(payload, form=form)
        if self.service.settings.log == "text":
            self.service.say(f"translate {[text.texts for text in asked.texts]!r}")
        found = await self.service.within_limits(request, self.service.translate(asked))
        if asked.libre:
            return answers.libre_translation(asked, found, self.service.model.src_lang)
        return answers.translations(asked, found)

    async def detect(self, request: Request, payload: Mapping[str, Any], form: bool) -> Any:
        text = self.service.reader.detect(payload)
        return [answers.detected(text, self.service.model.src_lang)]

    async def attention(self, request: Request, payload: Mapping[str, Any], form: bool) -> Any:
        asked = self.service.reader.attention(payload, form=form)
        work = self.service.attend(asked)
        found = await self.service.within_limits(request, work)
        # Not in the event loop: rounding and writing so many numbers takes long.
        return await asyncio.to_thread(answers.attention, asked, found)

    async def languages(self, _: Request) -> Response:
        model = self.service.model
        source, target = model.src_lang, model.tgt_lang
        return JsonResponse(
            [
                {"code": source, "name": language_name(source), "targets": [target]},
                {"code": target, "name": language_name(target), "targets": []},
            ]
        )

    async def settings(self, _: Request) -> Response:
        return JsonResponse(page_settings(self.service.model, self.service.settings))

    async def health(self, _: Request) -> Response:
        state = self.service.state
        about: dict[str, Any] = {"status": state}
        if state == "starting":
            about["done"], about["of"] = self.service.warm
        headers = {} if state == "ok" else {"retry-after": "5"}
        return JsonResponse(about, 200 if state == "ok" else 503, headers)

    async def metrics(self, request: Request) -> Response:
        try:
            self._admit(key_in_headers(request.headers))
        except Refusal as refusal:
            return self._refused(refusal)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        headers = {"cache-control": "no-store"}
        return Response(self.service.metrics.text(), media_type=kind, headers=headers)

    def _admit(self, key: Any) -> None:
        if not self.keys.needed:
            return
        if key is None:
            raise Refusal(
                401,
                "an API key is needed: as 'Authorization: Bearer KEY', or 'api_key' in the body",
                reason="key",
                headers={"www-authenticate": "Bearer"},
            )
        if not isinstance(key, str) or not self.keys.accept(key):
            raise Refusal(403, "the API key is not valid", reason="key")

    def _refused(self, refusal: Refusal) -> Response:
        self.service.metrics.refused.add(reason=refusal.reason)
        return JsonResponse({"error": refusal.message}, refusal.status, refusal.headers)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JsonResponse({"error": error.detail}, error.status_code, dict(error.headers or {}))


def _readable(app: ASGIApp, settings: ServerSettings) -> ASGIApp:
    """`app`, whose answers the pages of the allowed origins may read."""
    if not settings.cors_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "x-api-key"],
        expose_headers=["retry-after"],
        max_age=3600,
    )
