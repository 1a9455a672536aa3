"""The JSON that clients get: its models, their construction, and the OpenAPI document."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from starlette.responses import Response

from flaxformer_mt import __version__
from flaxformer_mt.sentences import SplitText
from flaxformer_mt.serving.engine import Attended, Translated
from flaxformer_mt.serving.requests import (
    JSON,
    AttentionRequest,
    Kind,
    Reader,
    TranslateRequest,
    TranslateTask,
)
from flaxformer_mt.serving.settings import Model, confidence, language_name

_DECIMALS = 4  # of attention weights, as many as a picture can show
State = Literal["warming", "ok", "failing", "stopping"]


class _Answer(BaseModel):
    """Fields that aren't set are left out."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Alignment(_Answer):
    source_words: Sequence[str]
    target_words: Sequence[str]
    links: Sequence[Annotated[Sequence[NonNegativeInt], Field(min_length=2, max_length=2)]] = Field(
        description="source word, target word, counted from 0"
    )


class Hypothesis(_Answer):
    text: str
    score: float = Field(description="log_prob / length penalty")
    log_prob: float = Field(description="natural logarithm")
    alignment: Alignment | None = None


class Sentence(_Answer):
    source: str
    code: str = Field(default="", description="language code inherited from an earlier sentence")
    split: bool = Field(description="too long for the model: split and rejoined")
    at_limit: bool = Field(description="the output reached the length limit")
    hypotheses: Sequence[Hypothesis] = Field(min_length=1)


class Translation(_Answer):
    text: str
    sentences: Sequence[Sentence]


class TranslateAnswer(_Answer):
    translations: Sequence[Translation]


class Detected(_Answer):
    language: str
    confidence: float = Field(ge=0, le=100)


class LibreTranslateAnswer(_Answer):
    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] = []
    detectedLanguage: Detected | list[Detected] = []


class AttentionAnswer(_Answer):
    text: str
    translation: str
    kind: Kind
    layer: int
    layers: int
    heads: int
    rows: Sequence[str]
    columns: Sequence[str]
    weights: Sequence[Sequence[Sequence[float]]] = Field(
        description="heads, rows, columns; a row sums to 1"
    )


class Language(_Answer):
    code: str
    name: str
    targets: Sequence[str]


class Health(_Answer):
    status: State
    done: int = Field(default=0, description="warm-up steps done")
    of: int = 0


class Error(_Answer):
    error: str


def json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """UTF-8 JSON, never cached, since translations are private. Bytes are JSON already."""
    body = content if isinstance(content, bytes) else as_json(content)
    headers = {"cache-control": "no-store", **(headers or {})}
    return Response(body, status, headers, media_type="application/json")


def as_json(content: Any) -> bytes:
    """Compact UTF-8. Raises ValueError for numbers that JSON doesn't have."""
    text = json.dumps(
        content,
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
        default=lambda answer: answer.model_dump(exclude_unset=True),
    )
    return text.encode()


def translations(
    task: TranslateTask, found: Sequence[Sequence[Translated]], src_lang: str
) -> TranslateAnswer | LibreTranslateAnswer:
    pairs = list(zip(task.texts, found, strict=True))
    if isinstance(task.form, TranslateRequest):
        return TranslateAnswer(
            translations=[
                Translation(
                    text=text.joined([each.translation.text for each in sentences]),
                    sentences=[_sentence(task.form, each) for each in sentences],
                )
                for text, sentences in pairs
            ]
        )
    ranked = [
        [_joined(text, sentences, rank) for rank in range(task.n_best)] for text, sentences in pairs
    ]
    answer: dict[str, list[Any]] = {"translatedText": [texts[0] for texts in ranked]}
    if task.form.alternatives:
        # Without duplicates: one sentence may have fewer translations than requested.
        answer["alternatives"] = [
            [text for text in dict.fromkeys(texts) if text != texts[0]] for texts in ranked
        ]
    if task.form.source == "auto":
        answer["detectedLanguage"] = [detected(text, src_lang) for text in task.form.given]
    one = isinstance(task.form.q, str)
    fields: dict[str, Any] = {key: each[0] if one else each for key, each in answer.items()}
    return LibreTranslateAnswer(**fields)


def _sentence(asked: TranslateRequest, found: Translated) -> Sentence:
    hypotheses = [
        Hypothesis(text=each.text, score=each.score, log_prob=each.log_prob)
        for each in found.translation.hypotheses[: asked.n_best]
    ]
    if asked.alignment:
        for hypothesis, its in zip(hypotheses, found.alignments, strict=False):
            hypothesis.alignment = None  # now set, so it isn't left out
            if its is not None:
                hypothesis.alignment = Alignment(
                    source_words=its.src_words, target_words=its.tgt_words, links=its.links
                )
    sentence = Sentence(
        source=found.sentence.text,
        split=found.translation.split,
        at_limit=found.translation.at_limit,
        hypotheses=hypotheses,
    )
    if found.sentence.code:
        sentence.code = found.sentence.code
    return sentence


def _joined(text: SplitText, found: Sequence[Translated], rank: int) -> str:
    """The n-th alternative joins each sentence's n-th, or its last."""
    hypotheses = [each.translation.hypotheses for each in found]
    return text.joined([each[min(rank, len(each) - 1)].text for each in hypotheses])


def detected(text: str, src_lang: str) -> Detected:
    return Detected(language=src_lang, confidence=confidence(text, src_lang))


def languages(model: Model) -> list[Language]:
    source, target = model.src_lang, model.tgt_lang
    return [
        Language(code=source, name=language_name(source), targets=[target]),
        Language(code=target, name=language_name(target), targets=[]),
    ]


def attention(request: AttentionRequest, found: Attended) -> bytes:
    """One layer's weights as JSON, for a thread: written row by row, since a single call would hold
    the interpreter, and all other requests, until the last number."""
    translation, picked = found
    about = AttentionAnswer(
        text=request.text,
        translation=translation,
        kind=request.kind,
        layer=request.layer,
        layers=picked.layers,
        heads=picked.of_heads,
        rows=picked.rows,
        columns=picked.columns,
        weights=[],
    )
    rounded = np.round(picked.weights.astype(np.float64), _DECIMALS)
    heads = b",".join(b"[%b]" % b",".join(as_json(r.tolist()) for r in head) for head in rounded)
    return as_json(about).removesuffix(b"]}") + heads + b"]}"


Json = dict[str, Any]
_REASONS = {
    "400": "Invalid request",
    "401": "API key required",
    "403": "Invalid API key, or the page's origin is not allowed",
    "408": "The body did not arrive in time",
    "413": "Too many bytes, characters, texts, sentences or weights",
    "415": "Neither JSON nor a form",
    "500": "Server error, logged under the id in the message",
    "503": "The queue is full, the answer timed out, or the server is stopping",
}


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def openapi(reader: Reader) -> Json:
    """OpenAPI 3.1: all paths, requests and answers."""
    model, text = reader.model, "A dog runs home."
    # By path: what it does, what it takes (with examples), what it answers.
    operations: dict[str, tuple[str, Any, Mapping[str, Json], Any]] = {
        "/translate": (
            "Translate one or more texts",
            reader.translate_form | reader.libre_form,
            {
                "ours": {"text": text, "n_best": 2, "alignment": True, "terms": {"dog": "Hund"}},
                "LibreTranslate": {"q": text, "source": model.src_lang, "target": model.tgt_lang},
            },
            TranslateAnswer | LibreTranslateAnswer,
        ),
        "/detect": (
            "How likely a text is in the source language",
            reader.detect_form,
            {"text": {"q": text}},
            Annotated[list[Detected], Field(min_length=1, max_length=1)],
        ),
        "/attention": (
            "Attention weights of a sentence and its translation, for all heads of a layer",
            reader.attention_form,
            {"sentence": {"text": text, "kind": "cross", "layer": 0}},
            AttentionAnswer,
        ),
        "/languages": ("Source and target languages", None, {}, list[Language]),
        "/frontend/settings": ("Page settings and limits", None, {}, Json),
        "/health": ("Health check", None, {}, Health),
        "/metrics": ("Metrics in Prometheus' text format", None, {}, str),
    }
    types: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        ("error", "serialization", TypeAdapter(Error))
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
        post = request is not None
        schema = schemas[path, "serialization"]
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
                f"{model.name}, weights: {model.weights}. POST /translate accepts our format, "
                "with n-best lists and alignments, and LibreTranslate's."
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
