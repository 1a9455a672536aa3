"""The OpenAPI document of a server: the models of requests and answers, with its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from flaxformer_mt import __version__
from flaxformer_mt.serving import answers
from flaxformer_mt.serving.model_info import language_name
from flaxformer_mt.serving.requests import JSON, Reader

Json = dict[str, Any]
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
    model, text = reader.model, "A dog runs home."
    # By path: what it does, what it takes (with examples), what it answers.
    operations: dict[str, tuple[str, Any, Mapping[str, Json], Any]] = {
        "/translate": (
            "Translate a text or several",
            reader.translate_form | reader.libre_form,
            {
                "ours": {"text": text, "n_best": 2, "alignment": True},
                "LibreTranslate": {"q": text, "source": model.src_lang, "target": model.tgt_lang},
            },
            answers.TranslateAnswer | answers.LibreTranslateAnswer,
        ),
        "/detect": (
            "How far a text can be in the source language",
            reader.detect_form,
            {"text": {"q": text}},
            Annotated[list[answers.Detected], Field(min_length=1, max_length=1)],
        ),
        "/attention": (
            "Attention weights of a sentence and its translation, all heads of a layer",
            reader.attention_form,
            {"sentence": {"text": text, "kind": "cross", "layer": 0}},
            answers.AttentionAnswer,
        ),
        "/languages": (
            "The languages that are translated from and into",
            None,
            {},
            list[answers.Language],
        ),
        "/frontend/settings": ("What the page shows, and the limits", None, {}, Json),
        "/health": ("Whether requests are answered", None, {}, answers.Health),
        "/metrics": ("Counters in Prometheus' text format", None, {}, str),
    }
    types: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        ("error", "serialization", TypeAdapter(answers.Error))
    ]
    for path, (_, request, _, answer) in operations.items():
        types.append((path, "serialization", TypeAdapter(answer)))
        if request is not None:
            types.append((path, "validation", TypeAdapter(request)))
    template = "#/components/schemas/{model}"
    schemas, definitions = TypeAdapter.json_schemas(
        types, ref_template=template, schema_generator=_Untitled
    )

    def content(description: str, schema: Json, kind: str = JSON) -> Json:
        return {"description": description, "content": {kind: {"schema": schema}}}

    paths = {}
    for path, (summary, request, examples, _) in operations.items():
        post, schema = request is not None, schemas[path, "serialization"]
        locked = reader.settings.keys and (post or path == "/metrics")
        refused = ["400", "403", "408", "413", "415", "500", "503"] if post else ["403", "503"]
        refused += ["401"] if locked else []
        error = schemas["error", "serialization"]
        responses = {status: content(_REASONS[status], error) for status in refused}
        retry = {"description": "seconds", "schema": {"type": "integer"}}
        responses["503"]["headers"] = {"Retry-After": retry}
        if path == "/health":
            responses["503"] = content("Starting, failing or stopping", schema)
        done = content("Done", schema, "text/plain" if path == "/metrics" else JSON)
        operation: Json = {
            "operationId": path.rpartition("/")[2],
            "summary": summary,
            "responses": {"200": done, **responses},
        }
        if post:
            shown = {name: {"value": value} for name, value in examples.items()}
            body = {"schema": schemas[path, "validation"], "examples": shown}
            operation["requestBody"] = {"required": True, "content": {JSON: body}}
        if locked:
            operation["security"] = [{"bearer": []}, {"header": []}]
        paths[path] = {"post" if post else "get": operation}
    languages = f"{language_name(model.src_lang)} → {language_name(model.tgt_lang)}"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Translation {languages}",
            "version": __version__,
            "description": (
                f"{model.name}, weights: {model.weights}. POST /translate takes our form, with "
                "n-best lists and alignments, and that of LibreTranslate."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }
