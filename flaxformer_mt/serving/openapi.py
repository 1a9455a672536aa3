"""The OpenAPI document of a server: the models of requests and answers, with its limits."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from flaxformer_mt import __version__
from flaxformer_mt.serving import answers
from flaxformer_mt.serving.model_info import language_name
from flaxformer_mt.serving.requests import JSON, Reader

Json = dict[str, Any]
_ANSWERS: tuple[type[BaseModel], ...] = (
    answers.TranslateAnswer,
    answers.LibreTranslateAnswer,
    answers.Detected,
    answers.AttentionAnswer,
    answers.Language,
    answers.Health,
    answers.Error,
)
_REASONS = {
    "400": "The request is not one of those described",
    "401": "An API key is needed",
    "403": "The API key is not valid, or the request is of a page that may not use this server",
    "408": "The body did not arrive in time",
    "413": "More bytes, characters, texts, sentences or weights than a request may have",
    "415": "Neither JSON nor a form",
    "500": "An error of the server's, which has logged it under the id in the message",
    "503": "No room for the request, no answer in time, or the server is starting or stopping",
}


class _Untitled(GenerateJsonSchema):
    """Fields' titles would be their names once more."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def openapi(reader: Reader) -> Json:
    """OpenAPI 3.1: every path, every request that is accepted and every answer there is."""
    model, keys = reader.model, bool(reader.settings.keys)
    detected = {"type": "array", "items": _ref("Detected"), "minItems": 1, "maxItems": 1}
    text = "A dog runs home."
    operations = {
        "/translate": _post(
            "Translate a text or several",
            [_ref("TranslateRequest"), _ref("LibreTranslateRequest")],
            {"anyOf": [_ref("TranslateAnswer"), _ref("LibreTranslateAnswer")]},
            ours={"text": text, "n_best": 2, "alignment": True},
            LibreTranslate={"q": text, "source": model.src_lang, "target": model.tgt_lang},
        ),
        "/detect": _post(
            "How far a text can be in the source language",
            [_ref("DetectRequest")],
            detected,
            text={"q": text},
        ),
        "/attention": _post(
            "Attention weights of a sentence and its translation, all heads of a layer",
            [_ref("AttentionRequest")],
            _ref("AttentionAnswer"),
            sentence={"text": text, "kind": "cross", "layer": 0},
        ),
        "/languages": _get(
            "The languages that are translated from and into",
            {"type": "array", "items": _ref("Language")},
        ),
        "/frontend/settings": _get("What the page shows, and the limits", {"type": "object"}),
        "/health": _get("Whether requests are answered", _ref("Health")),
        "/metrics": _get("Counters in Prometheus' text format", {"type": "string"}, "text/plain"),
    }
    operations["/health"]["responses"]["503"] = _content(
        "Starting, failing or stopping", _ref("Health")
    )
    for path in ("/translate", "/detect", "/attention", "/metrics") if keys else ():
        operations[path]["security"] = [{"bearer": []}, {"header": []}]
        operations[path]["responses"] |= _refused("401")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Translation "
            f"{language_name(model.src_lang)} → {language_name(model.tgt_lang)}",
            "version": __version__,
            "description": (
                f"{model.name}, weights: {model.weights}. POST /translate takes our form, with "
                "n-best lists and alignments, and that of LibreTranslate."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            path: {
                "post" if "requestBody" in operation else "get": {
                    "operationId": path.rpartition("/")[2],
                    **operation,
                }
            }
            for path, operation in operations.items()
        },
        "components": {
            "schemas": _schemas(reader),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _schemas(reader: Reader) -> Json:
    requests = (reader.translate_form, reader.libre_form, reader.detect_form, reader.attention_form)
    modes: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
        *((each, "validation") for each in requests),
        *((each, "serialization") for each in _ANSWERS),
    ]
    template = "#/components/schemas/{model}"
    _, schemas = models_json_schema(modes, ref_template=template, schema_generator=_Untitled)
    found: Json = schemas["$defs"]
    return found


def _post(summary: str, bodies: list[Json], answer: Json, **examples: Json) -> Json:
    body = {
        "schema": bodies[0] if len(bodies) == 1 else {"anyOf": bodies},
        "examples": {name: {"value": value} for name, value in examples.items()},
    }
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {JSON: body}},
        "responses": {
            "200": _content("Done", answer),
            **_refused("400", "403", "408", "413", "415", "500", "503"),
        },
    }


def _get(summary: str, answer: Json, kind: str = JSON) -> Json:
    responses = {"200": _content("Done", answer, kind), **_refused("403", "503")}
    return {"summary": summary, "responses": responses}


def _content(description: str, schema: Json, kind: str = JSON) -> Json:
    return {"description": description, "content": {kind: {"schema": schema}}}


def _refused(*statuses: str) -> Json:
    refusals = {status: _content(_REASONS[status], _ref("Error")) for status in statuses}
    if "503" in refusals:
        refusals["503"]["headers"] = {
            "Retry-After": {"description": "seconds", "schema": {"type": "integer"}}
        }
    return refusals


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}
