"""The JSON that clients get: its models, their construction, and the OpenAPI document."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from starlette.responses import Response

from flaxformer_mt import __version__
from flaxformer_mt.config.languages import has_blanks_between_sentences
from flaxformer_mt.decoding.aligned_text import joined_and_aligned
from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.text.coded_sentences import CodedSentences
from flaxformer_mt.markup.document import Document
from flaxformer_mt.markup.placing import placed
from flaxformer_mt.serving.engine import Attended, Translated
from flaxformer_mt.serving.requests import (
    JSON,
    MULTIPART,
    AttentionRequest,
    FileTask,
    Kind,
    LibreTranslateRequest,
    Reader,
    TranslateRequest,
    TranslateTask,
)
from flaxformer_mt.serving.served_model import ServedModel, confidence, language_name

_DECIMALS = 4  # of attention weights, as many as a picture can show
State = Literal["warming", "ok", "failing", "stopping"]


class _Answer(BaseModel):
    """Fields that aren't set are left out. `title` names a schema otherwise than its class."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class AlignmentAnswer(_Answer, title="Alignment"):
    source_words: Sequence[str]
    target_words: Sequence[str]
    links: Sequence[Annotated[Sequence[NonNegativeInt], Field(min_length=2, max_length=2)]] = Field(
        description="source word, target word, counted from 0"
    )


class HypothesisAnswer(_Answer, title="Hypothesis"):
    text: str
    score: float = Field(description="log_prob / length penalty")
    log_prob: float = Field(description="natural logarithm")
    alignment: AlignmentAnswer | None = None


class SentenceAnswer(_Answer, title="Sentence"):
    source: str
    code: str = Field(default="", description="language code inherited from an earlier sentence")
    split: bool = Field(description="too long for the model: split and rejoined")
    at_limit: bool = Field(description="the output reached the length limit")
    hypotheses: Sequence[HypothesisAnswer] = Field(min_length=1)


class TranslationAnswer(_Answer, title="Translation"):
    text: str
    sentences: Sequence[SentenceAnswer]


class TranslateAnswer(_Answer):
    translations: Sequence[TranslationAnswer]


class Detected(_Answer):
    language: str
    confidence: float = Field(ge=0, le=100)


class LibreTranslateAnswer(_Answer):
    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] = []
    detectedLanguage: Detected | list[Detected] = []


class TranslateFileAnswer(_Answer):
    translatedFileUrl: str


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
    task: TranslateTask, translated: Sequence[Sequence[Translated]]
) -> TranslateAnswer | LibreTranslateAnswer:
    """The answer in the request's form; `translated` has the sentences of each text."""
    pairs = list(zip(task.texts, translated, strict=True))
    blanks = has_blanks_between_sentences(task.direction[1])
    answered = _documents(task, pairs) if task.documents else [_Whole(*pair) for pair in pairs]
    form = task.form
    if isinstance(form, LibreTranslateRequest):
        return _libre_answer(form, task, answered, blanks)
    return TranslateAnswer(
        translations=[
            TranslationAnswer(
                text=text.ranked(0, blanks),
                sentences=[_sentence(form, sentence) for sentence in text.sentences],
            )
            for text in answered
        ]
    )


def translated_file(file: FileTask, translated: Sequence[Sequence[Translated]]) -> bytes:
    """The bytes of a file, from the translated sentences of each of its texts."""
    pairs = list(zip(file.task.texts, translated, strict=True))
    blanks = has_blanks_between_sentences(file.task.direction[1])
    documents = _documents(file.task, pairs)
    return file.opened.pack([document.ranked(0, blanks) for document in documents])


def _libre_answer(
    form: LibreTranslateRequest,
    task: TranslateTask,
    answered: "Sequence[_Whole | _InHtml]",
    blanks: bool,
) -> LibreTranslateAnswer:
    ranked = [
        [text.ranked(rank, blanks) for rank in range(task.n_best)] for text in answered
    ]  # by text, best first
    lists: dict[str, list[Any]] = {"translatedText": [texts[0] for texts in ranked]}
    if form.alternatives:
        lists["alternatives"] = [_alternatives(texts) for texts in ranked]
    if form.source == "auto":
        lists["detectedLanguage"] = [_detected(text, task.direction[0]) for text in form.given]
    if isinstance(form.q, str):
        return LibreTranslateAnswer(**{field: answers[0] for field, answers in lists.items()})
    return LibreTranslateAnswer(**lists)


def _alternatives(ranked: Sequence[str]) -> list[str]:
    """Without duplicates: one sentence may have fewer translations than requested."""
    return [text for text in dict.fromkeys(ranked) if text != ranked[0]]


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A text of a request and its translated sentences."""

    text: CodedSentences
    sentences: Sequence[Translated]

    def ranked(self, rank: int, blanks: bool) -> str:
        """The n-th alternative joins each sentence's n-th, or its last; `blanks` is whether the
        target language has blanks between sentences."""
        return self.text.translated(self.outputs(rank), blanks=blanks)

    def outputs(self, rank: int) -> list[str]:
        ranked = [sentence.translation.hypotheses for sentence in self.sentences]
        return [hypotheses[min(rank, len(hypotheses) - 1)].text for hypotheses in ranked]


@dataclasses.dataclass(frozen=True)
class _InHtml:
    """A text of a request in HTML, and the translated sentences of its segments."""

    document: Document
    texts: Sequence[_Whole]

    @property
    def sentences(self) -> list[Translated]:
        return [sentence for text in self.texts for sentence in text.sentences]

    def ranked(self, rank: int, blanks: bool) -> str:
        """As `_Whole.ranked`, with tags."""
        contents = []
        for segment, whole in zip(self.document.segments, self.texts, strict=True):
            alignments = [_aligned(sentence, rank) for sentence in whole.sentences]
            joined = joined_and_aligned(whole.text, whole.outputs(rank), alignments, blanks=blanks)
            contents.append(placed(segment, *joined))
        return self.document.joined(contents)


def _aligned(sentence: Translated, rank: int) -> Alignment | None:
    """The alignment of a sentence's n-th translation, or its last, if there is any."""
    last = min(len(sentence.translation.hypotheses), len(sentence.alignments)) - 1
    return sentence.alignments[min(rank, last)] if last >= 0 else None


def _documents(
    task: TranslateTask, pairs: Sequence[tuple[CodedSentences, Sequence[Translated]]]
) -> list[_InHtml]:
    texts = iter(pairs)
    return [
        _InHtml(document, [_Whole(*next(texts)) for _ in document.segments])
        for document in task.documents
    ]


def _sentence(form: TranslateRequest, translated: Translated) -> SentenceAnswer:
    hypotheses = [
        HypothesisAnswer(text=hypothesis.text, score=hypothesis.score, log_prob=hypothesis.log_prob)
        for hypothesis in translated.translation.hypotheses[: form.n_best]
    ]
    if form.alignment:
        for hypothesis, alignment in zip(hypotheses, translated.alignments, strict=False):
            hypothesis.alignment = None  # now set, so it isn't left out
            if alignment is not None:
                hypothesis.alignment = AlignmentAnswer(
                    source_words=alignment.src_words,
                    target_words=alignment.tgt_words,
                    links=alignment.links,
                )

    sentence = SentenceAnswer(
        source=translated.sentence.text,
        split=translated.translation.split,
        at_limit=translated.translation.at_limit,
        hypotheses=hypotheses,
    )
    if translated.sentence.code:
        sentence.code = translated.sentence.code
    return sentence


def detected(text: str, model: ServedModel) -> list[Detected]:
    """Every source language, the likeliest first."""
    guesses = [_detected(text, source) for source in model.sources]
    return sorted(guesses, key=lambda guess: -guess.confidence)


def _detected(text: str, src_lang: str) -> Detected:
    return Detected(language=src_lang, confidence=confidence(text, src_lang))


def languages(model: ServedModel) -> list[Language]:
    """Every language with its targets, of which one is itself, as in LibreTranslate."""
    return [
        Language(
            code=code, name=language_name(code), targets=sorted({*model.targets_of(code), code})
        )
        for code in model.languages
    ]


def attention(request: AttentionRequest, attended: Attended) -> bytes:
    """One layer's weights as JSON, for a thread: written row by row, since a single call would hold
    the interpreter, and all other requests, until the last number."""
    translation, picked = attended
    without_weights = AttentionAnswer(
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
    heads = [
        b"[%b]" % b",".join(as_json(row.tolist()) for row in weights_of_head)
        for weights_of_head in rounded
    ]
    return as_json(without_weights).removesuffix(b"]}") + b",".join(heads) + b"]}"


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


_TITLES = {
    answer.__name__: answer.model_config["title"]
    for answer in _Answer.__subclasses__()
    if "title" in answer.model_config
}


class _SchemaGenerator(GenerateJsonSchema):
    """Leaves titles of fields out, and names schemas by their titles."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def normalize_name(self, name: str) -> str:
        return _TITLES.get(name) or super().normalize_name(name)


Mode = Literal["validation", "serialization"]
Schemas = Mapping[tuple[str, Mode], Json]  # of requests and answers, by path


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Operation:
    """The use of a path: by POST if it takes a request, else by GET."""

    summary: str
    answer: Any
    media_type: str = JSON  # of the answer
    request: Any = None
    examples: Mapping[str, Json] = dataclasses.field(default_factory=dict)  # of requests, by name

    @property
    def method(self) -> Literal["get", "post"]:
        return "get" if self.request is None else "post"


def openapi(reader: Reader) -> Json:
    """OpenAPI 3.1: all paths, requests and answers."""
    operations = _operations(reader)
    schemas, definitions = _schemas(operations)
    definitions[reader.translate_form.__name__] |= _known_pairs(reader.model)
    definitions[reader.libre_form.__name__] |= _known_pairs(reader.model, same=True)
    paths = {}
    for path, operation in operations.items():
        needs_key = bool(reader.settings.keys) and (
            operation.method == "post" or path == "/metrics"
        )
        described = _described(path, operation, schemas, needs_key)
        paths[path] = {operation.method: described}

    paths |= _file_paths(reader.model, schemas, bool(reader.settings.keys))
    title, description = _about(reader.model)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": __version__,
            "description": description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _file_paths(model: ServedModel, schemas: Schemas, needs_key: bool) -> Json:
    """OpenAPI's objects for files."""
    error = schemas["error", "serialization"]
    text = {"type": "string"}
    form = {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "source": {"enum": [*model.sources, "auto"]},
            "target": {"enum": [*model.targets]},
            "api_key": text,
        },
        "required": ["file", "source", "target"],
    }
    address = {"type": "object", "properties": {"translatedFileUrl": text}}
    statuses = ["400", "403", "408", "413", "415", "500", "503", *["401"] * needs_key]
    upload: Json = {
        "operationId": "translate_file",
        "summary": "Translate a file",
        "requestBody": {"required": True, "content": {MULTIPART: {"schema": form}}},
        "responses": {"200": _response("Where the translation is, for ten minutes", address)}
        | {status: _response(_REASONS[status], error) for status in statuses},
    }
    if needs_key:
        upload["security"] = [{"bearer": []}, {"header": []}]
    name = {"name": "name", "in": "path", "required": True, "schema": text}
    file = {"type": "string", "format": "binary"}
    download = {
        "operationId": "download_file",
        "summary": "A translated file",
        "parameters": [name],
        "responses": {
            "200": _response("The file", file, "application/octet-stream"),
            "403": _response(_REASONS["403"], error),
            "404": _response("No such file, or not any more", error),
            "503": _response(_REASONS["503"], error),
        },
    }
    return {"/translate_file": {"post": upload}, "/download_file/{name}": {"get": download}}


def _about(model: ServedModel) -> tuple[str, str]:
    """The document's title and description."""
    title = f"Translation {language_name(model.src_lang)} → {language_name(model.tgt_lang)}"
    description = (
        f"{model.name}, weights: {model.weights}. POST /translate accepts our format, "
        "with n-best lists and alignments, and LibreTranslate's."
    )
    if len(model.directions) > 1:
        title = f"Translation in {len(model.directions)} directions"
        description += " GET /languages lists each source language with its targets."
    return title, description


def _known_pairs(model: ServedModel, *, same: bool = False) -> Json:
    """What the schema of a request says of its two languages together, which may be the `same`."""
    targets = {source: model.targets_of(source) for source in model.sources}
    from_any: Json = {"source": {"enum": ["auto", None]}}
    if same:
        targets = {code: [*targets.get(code, []), code] for code in model.languages}
        from_any["target"] = {"enum": [*model.targets, None]}
    elif len(model.directions) == len(model.sources) * len(model.targets):
        return {}
    pairs = [
        {"source": {"enum": [source]}, "target": {"enum": [*codes, None]}}
        for source, codes in targets.items()
    ]
    return {"anyOf": [{"properties": properties} for properties in [from_any, *pairs]]}


def _operations(reader: Reader) -> dict[str, _Operation]:
    """All operations of the API, by path."""
    model, text = reader.model, "A dog runs home."
    source_count = len(model.sources)
    of_sources = "the source language" if source_count == 1 else "each source language"
    return {
        "/translate": _Operation(
            summary="Translate one or more texts",
            request=reader.translate_form | reader.libre_form,
            examples={
                "ours": {"text": text, "n_best": 2, "alignment": True, "terms": {"dog": "Hund"}},
                "LibreTranslate": {"q": text, "source": model.src_lang, "target": model.tgt_lang},
            },
            answer=TranslateAnswer | LibreTranslateAnswer,
        ),
        "/detect": _Operation(
            summary=f"How likely a text is in {of_sources}",
            request=reader.detect_form,
            examples={"text": {"q": text}},
            answer=Annotated[
                list[Detected], Field(min_length=source_count, max_length=source_count)
            ],
        ),
        "/attention": _Operation(
            summary="Attention weights of a sentence and its translation, for all heads of a layer",
            request=reader.attention_form,
            examples={"sentence": {"text": text, "kind": "cross", "layer": 0}},
            answer=AttentionAnswer,
        ),
        "/languages": _Operation(summary="Source and target languages", answer=list[Language]),
        "/frontend/settings": _Operation(summary="Page settings and limits", answer=Json),
        "/health": _Operation(summary="Health check", answer=Health),
        "/metrics": _Operation(
            summary="Metrics in Prometheus' text format", answer=str, media_type="text/plain"
        ),
    }


def _schemas(operations: Mapping[str, _Operation]) -> tuple[Schemas, Json]:
    """The schemas of all requests, answers and errors, and the definitions that they refer to."""
    types: list[tuple[str, Mode, TypeAdapter[Any]]] = [
        ("error", "serialization", TypeAdapter(Error))
    ]
    for path, operation in operations.items():
        types.append((path, "serialization", TypeAdapter(operation.answer)))
        if operation.request is not None:
            types.append((path, "validation", TypeAdapter(operation.request)))
    schemas, definitions = TypeAdapter.json_schemas(
        types, ref_template="#/components/schemas/{model}", schema_generator=_SchemaGenerator
    )
    return schemas, definitions["$defs"]


def _described(path: str, operation: _Operation, schemas: Schemas, needs_key: bool) -> Json:
    """OpenAPI's object for an operation."""
    described: Json = {
        "operationId": path.rpartition("/")[2],
        "summary": operation.summary,
        "responses": _responses(path, operation, schemas, needs_key),
    }
    if operation.method == "post":
        examples = {name: {"value": request} for name, request in operation.examples.items()}
        body = {"schema": schemas[path, "validation"], "examples": examples}
        described["requestBody"] = {"required": True, "content": {JSON: body}}
    if needs_key:
        described["security"] = [{"bearer": []}, {"header": []}]
    return described


def _responses(path: str, operation: _Operation, schemas: Schemas, needs_key: bool) -> Json:
    """An operation's answer and its errors, by status."""
    answer = schemas[path, "serialization"]
    error = schemas["error", "serialization"]
    statuses = ["403", "503"]
    if operation.method == "post":
        statuses = ["400", "403", "408", "413", "415", "500", "503"]
    if needs_key:
        statuses.append("401")

    responses = {"200": _response("Done", answer, operation.media_type)}
    for status in statuses:
        responses[status] = _response(_REASONS[status], error)
    if path == "/health":
        responses["503"] = _response("Starting, failing or stopping", answer)
    else:
        retry = {"description": "seconds", "schema": {"type": "integer"}}
        responses["503"]["headers"] = {"Retry-After": retry}
    return responses


def _response(description: str, schema: Json, media_type: str = JSON) -> Json:
    return {"description": description, "content": {media_type: {"schema": schema}}}
