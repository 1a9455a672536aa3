"""The OpenAPI document of a server, with the limits it has."""

from __future__ import annotations

from typing import Any

from flaxformer_mt import __version__
from flaxformer_mt.serving.model_info import Model, language_name
from flaxformer_mt.serving.requests import KINDS, VISIBLE
from flaxformer_mt.serving.settings import ServerSettings

Json = dict[str, Any]


def openapi(model: Model, settings: ServerSettings) -> Json:
    """OpenAPI 3.1: every path, every request that is accepted and every answer there is."""
    source, target = model.src_lang, model.tgt_lang
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Translation {language_name(source)} → {language_name(target)}",
            "version": __version__,
            "description": (
                f"{model.name}, weights: {model.weights}. POST /translate takes our form, with "
                "n-best lists and alignments, and that of LibreTranslate."
            ),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/translate": {
                "post": _post(
                    "translate",
                    "Translate a text or several",
                    {"anyOf": [_ref("TranslateRequest"), _ref("LibreTranslateRequest")]},
                    {"anyOf": [_ref("TranslateAnswer"), _ref("LibreTranslateAnswer")]},
                    {
                        "ours": {"text": "A dog runs home.", "n_best": 2, "alignment": True},
                        "LibreTranslate": {
                            "q": "A dog runs home.",
                            "source": source,
                            "target": target,
                        },
                    },
                    settings,
                )
            },
            "/detect": {
                "post": _post(
                    "detect",
                    "How far a text can be in the source language",
                    _ref("DetectRequest"),
                    {"type": "array", "items": _ref("Detected"), "minItems": 1, "maxItems": 1},
                    {"a text": {"q": "A dog runs home."}},
                    settings,
                )
            },
            "/attention": {
                "post": _post(
                    "attention",
                    "Attention weights of a sentence and its translation, all heads of a layer",
                    _ref("AttentionRequest"),
                    _ref("AttentionAnswer"),
                    {"a sentence": {"text": "A dog runs home.", "kind": "cross", "layer": 0}},
                    settings,
                )
            },
            "/languages": {
                "get": _get(
                    "languages",
                    "The languages that are translated from and into",
                    {"type": "array", "items": _ref("Language")},
                )
            },
            "/frontend/settings": {
                "get": _get("settings", "What the page shows, and the limits", {"type": "object"})
            },
            "/health": {
                "get": _get("health", "Whether requests are answered", _ref("Health"))
                | {"responses": _health_responses()}
            },
            "/metrics": {
                "get": {
                    "operationId": "metrics",
                    "summary": "Counters in Prometheus' text format",
                    "responses": {
                        "200": {
                            "description": "Counters",
                            "content": {"text/plain": {"schema": {"type": "string"}}},
                        },
                        **_refusals(settings),
                    },
                    **_security(settings),
                }
            },
        },
        "components": {
            "schemas": _schemas(model, settings),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _post(
    name: str, summary: str, body: Json, answer: Json, examples: Json, settings: ServerSettings
) -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": body,
                    "examples": {key: {"value": value} for key, value in examples.items()},
                }
            },
        },
        "responses": {
            "200": _answer("Done", answer),
            **_refusals(settings, "400", "408", "413", "415", "500"),
        },
        **_security(settings),
    }


def _get(name: str, summary: str, answer: Json) -> Json:
    responses = {"200": _answer("Done", answer), **_refused("403", "503")}
    return {"operationId": name, "summary": summary, "responses": responses}


def _answer(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


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


def _refusals(settings: ServerSettings, *statuses: str) -> Json:
    """Of an address that needs a key where there are any."""
    return _refused(*statuses, "403", "503", *(["401"] if settings.keys else []))


def _refused(*statuses: str) -> Json:
    refusals = {status: _answer(_REASONS[status], _ref("Error")) for status in sorted(statuses)}
    if "503" in refusals:
        refusals["503"]["headers"] = {
            "Retry-After": {"description": "seconds", "schema": {"type": "integer"}}
        }
    return refusals


def _health_responses() -> Json:
    return {
        "200": _answer("Requests are answered", _ref("Health")),
        "503": _answer("Starting, failing or stopping", _ref("Health")),
        **_refused("403"),
    }


def _security(settings: ServerSettings) -> Json:
    return {"security": [{"bearer": []}, {"header": []}]} if settings.keys else {}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: str, properties: Json, *, open_: bool = False) -> Json:
    schema = {"type": "object", "required": required.split(), "properties": properties}
    return schema if open_ else schema | {"additionalProperties": False}


def _schemas(model: Model, settings: ServerSettings) -> Json:
    n_best = settings.most_hypotheses(model.beam_size)
    text: Json = {"type": "string", "maxLength": settings.max_characters}
    several = {"type": "array", "items": text, "minItems": 1, "maxItems": settings.max_texts}
    texts = {"anyOf": [text, several]}
    sentence = text | {"pattern": VISIBLE}
    source = {"type": "string", "enum": [model.src_lang, "auto"]}
    target = {"type": "string", "enum": [model.tgt_lang]}
    api_key = {"type": "string", "description": "as LibreTranslate's clients send it"}
    string, number, boolean = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
    strings = {"type": "array", "items": string}
    layers = max(model.encoder_layers, model.decoder_layers)
    return {
        "TranslateRequest": _object(
            "text",
            {
                "text": texts,
                "n_best": {"type": "integer", "minimum": 1, "maximum": n_best, "default": 1},
                "alignment": boolean | {"default": False},
                "sentences": boolean
                | {"default": True, "description": "cut texts at sentence ends, not only at lines"},
                "source": source,
                "target": target,
                "api_key": api_key,
            },
        ),
        "LibreTranslateRequest": _object(
            "q source target",
            {
                "q": texts,
                "text": False,
                "source": source,
                "target": target,
                "format": {"type": "string", "enum": ["text"]},
                "alternatives": {"type": "integer", "minimum": 0, "maximum": n_best - 1},
                "api_key": api_key,
            },
            open_=True,
        ),
        "TranslateAnswer": _object(
            "translations",
            {"translations": {"type": "array", "items": _ref("Translation")}},
        ),
        "Translation": _object(
            "text sentences",
            {"text": string, "sentences": {"type": "array", "items": _ref("Sentence")}},
        ),
        "Sentence": _object(
            "source split at_limit hypotheses",
            {
                "source": string,
                "code": string | {"description": "language code taken over from a sentence before"},
                "split": boolean | {"description": "longer than the model takes: cut and rejoined"},
                "at_limit": boolean | {"description": "as long as an output may be"},
                "hypotheses": {"type": "array", "items": _ref("Hypothesis"), "minItems": 1},
            },
        ),
        "Hypothesis": _object(
            "text score log_prob",
            {
                "text": string,
                "score": number | {"description": "log_prob / length penalty"},
                "log_prob": number | {"description": "natural logarithm"},
                "alignment": {"anyOf": [_ref("Alignment"), {"type": "null"}]},
            },
        ),
        "Alignment": _object(
            "source_words target_words links",
            {
                "source_words": strings,
                "target_words": strings,
                "links": {
                    "type": "array",
                    "description": "source word, target word, counted from 0",
                    "items": {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 0},
                        "minItems": 2,
                        "maxItems": 2,
                    },
                },
            },
        ),
        "LibreTranslateAnswer": _object(
            "translatedText",
            {
                "translatedText": {"anyOf": [string, strings]},
                "alternatives": {
                    "anyOf": [strings, {"type": "array", "items": strings}],
                },
                "detectedLanguage": {
                    "anyOf": [_ref("Detected"), {"type": "array", "items": _ref("Detected")}]
                },
            },
        ),
        "DetectRequest": _object("q", {"q": text, "api_key": api_key}, open_=True),
        "Detected": _object(
            "language confidence",
            {"language": string, "confidence": number | {"minimum": 0, "maximum": 100}},
        ),
        "AttentionRequest": _object(
            "text",
            {
                "text": sentence,
                "translation": {"anyOf": [sentence, {"type": "null"}]},
                "kind": {"type": "string", "enum": list(KINDS), "default": "cross"},
                "layer": {"type": "integer", "minimum": 0, "maximum": layers - 1},
                "api_key": api_key,
            },
        ),
        "AttentionAnswer": _object(
            "text translation kind layer layers heads rows columns weights",
            {
                "text": string,
                "translation": string,
                "kind": {"type": "string", "enum": list(KINDS)},
                "layer": {"type": "integer"},
                "layers": {"type": "integer"},
                "heads": {"type": "integer"},
                "rows": strings,
                "columns": strings,
                "weights": {
                    "type": "array",
                    "description": "heads, rows, columns; a row sums to 1",
                    "items": {"type": "array", "items": {"type": "array", "items": number}},
                },
            },
        ),
        "Language": _object(
            "code name targets", {"code": string, "name": string, "targets": strings}
        ),
        "Health": _object(
            "status",
            {
                "status": {"type": "string", "enum": ["starting", "ok", "failing", "stopping"]},
                "done": {"type": "integer"},
                "of": {"type": "integer"},
            },
        ),
        "Error": _object("error", {"error": string}),
    }
