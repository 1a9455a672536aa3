"""Requests: from a body's bytes, with limits, to typed and checked values."""

import asyncio
import dataclasses
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import pydantic
from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, create_model
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from flaxformer_mt.errors import nearest
from flaxformer_mt.serving.access import Refusal, bad_request, shown, too_large
from flaxformer_mt.serving.sentences import CodedSentences, coded_sentences
from flaxformer_mt.serving.settings import Model, ServerSettings

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
Kind = Literal["cross", "encoder", "decoder"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# A non-blank character, as Rust, Python and ECMAScript all define it.
_VISIBLE = r"[^\s\u001c-\u001f\u0085\ufeff]"
# Bounds the tables of a search: a forbidden character costs a row over the vocabulary.
_Phrase = Annotated[str, Field(pattern=_VISIBLE, max_length=60)]
_MOST_FIELDS = 100  # of a form
_TOO_LARGE = {"string_too_long", "too_long"}
_CLEARER = {"missing": "is missing", "string_pattern_mismatch": "must not be blank"}
_M = TypeVar("_M", bound="_Body")


def _plain(value: Any, info: ValidationInfo) -> Any:
    """JSON's 2.0 is the same number as 2; a form has only texts."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if info.context == FORM and isinstance(value, str):
        if value in ("true", "false"):
            return value == "true"
        return int(value[:9]) if value.isascii() and value.isdecimal() else value
    return value


_PLAIN = BeforeValidator(_plain)


class _Body(pydantic.BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


# Fields that a server bounds have their types below as well, for mypy, without the bounds.


class TranslateRequest(_Body):
    text: str | list[str]
    n_best: int = 1
    alignment: Annotated[bool, _PLAIN] = False
    sentences: Annotated[bool, _PLAIN] = Field(
        default=True, description="split texts at sentence ends, not only at line ends"
    )
    terms: dict[_Phrase, _Phrase] = Field(
        default={}, max_length=60, description="how to translate these terms of the source"
    )
    forbid: list[_Phrase] = Field(
        default=[], max_length=20, description="phrases that no translation may contain"
    )
    source: str
    target: str
    api_key: str = Field(default="", description="LibreTranslate's format")

    @property
    def given(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text


class LibreTranslateRequest(_Body):
    # Clients send keys of their own, which LibreTranslate passes over. With "text" it is our form.
    model_config = ConfigDict(
        extra="ignore", json_schema_extra=lambda schema: schema["properties"].update(text=False)
    )
    q: str | list[str]
    source: str
    target: str
    format: Literal["text"] = "text"
    alternatives: int = 0
    api_key: str = ""
    alignment: ClassVar[bool] = False
    sentences: ClassVar[bool] = True
    terms: ClassVar[Mapping[str, str]] = {}
    forbid: ClassVar[Sequence[str]] = ()

    @property
    def given(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else self.q

    @property
    def n_best(self) -> int:
        return self.alternatives + 1


class DetectRequest(_Body):
    model_config = ConfigDict(extra="ignore")
    q: str
    api_key: str = ""


class AttentionRequest(_Body):
    text: str
    translation: str | None = None
    kind: Kind = "cross"
    layer: int
    api_key: str = ""


@dataclasses.dataclass(frozen=True)
class TranslateTask:
    form: TranslateRequest | LibreTranslateRequest
    texts: tuple[CodedSentences, ...]


class Reader:
    """Checks requests against a server's settings and its model. `kind` is JSON or FORM. Every
    method raises Refusal."""

    def __init__(self, model: Model, settings: ServerSettings) -> None:
        self.model, self.settings = model, settings
        self.most_hypotheses = settings.most_hypotheses(model.beam_size)
        self._layers: dict[Kind, int] = dict.fromkeys(KINDS, model.decoder_layers)
        self._layers["encoder"] = model.encoder_layers
        text: Any = Annotated[str, Field(max_length=settings.max_characters)]
        # A list of a million numbers is one error.
        several = Field(min_length=1, max_length=settings.max_texts, fail_fast=True)
        texts: Any = text | Annotated[list[text], several]
        sentence: Any = Annotated[text, Field(pattern=_VISIBLE)]
        source: Any = Literal[model.src_lang, "auto"]
        target: Any = Literal[model.tgt_lang]

        def whole(least: int, most: int) -> Any:
            return Annotated[int, Field(ge=least, le=most), _PLAIN]

        self.translate_form = create_model(
            "TranslateRequest",
            __base__=TranslateRequest,
            text=texts,
            n_best=(whole(1, self.most_hypotheses), 1),
            source=(source, model.src_lang),
            target=(target, model.tgt_lang),
        )
        self.libre_form = create_model(
            "LibreTranslateRequest",
            __base__=LibreTranslateRequest,
            q=texts,
            source=source,
            target=target,
            alternatives=(whole(0, self.most_hypotheses - 1), 0),
        )
        self.detect_form = create_model("DetectRequest", __base__=DetectRequest, q=text)
        last_layer = Field(default_factory=lambda asked: self._layers[asked["kind"]] - 1)
        self.attention_form = create_model(
            "AttentionRequest",
            __base__=AttentionRequest,
            text=sentence,
            translation=(sentence | None, None),
            layer=(whole(0, max(self._layers.values()) - 1), last_layer),
        )

    def translate(self, payload: Mapping[str, Any], kind: str = JSON) -> TranslateTask:
        """LibreTranslate's form has `q`, ours `text`."""
        ours = "q" not in payload or "text" in payload
        form = _checked(self.translate_form if ours else self.libre_form, payload, kind)
        given = form.given
        at_marks = form.sentences
        codes, language = self.model.codes, self.model.src_lang
        _at_most(sum(map(len, given)), self.settings.max_characters, "characters")
        texts = tuple(
            coded_sentences(text, language, at_marks=at_marks, codes=codes) for text in given
        )
        _at_most(sum(len(text.texts) for text in texts), self.settings.max_sentences, "sentences")
        return TranslateTask(form, texts)

    def detect(self, payload: Mapping[str, Any], kind: str = JSON) -> str:
        return _checked(self.detect_form, payload, kind).q

    def attention(self, payload: Mapping[str, Any], kind: str = JSON) -> AttentionRequest:
        asked = _checked(self.attention_form, payload, kind)
        if asked.layer >= (layers := self._layers[asked.kind]):
            raise bad_request(f"'layer' should be less than or equal to {layers - 1}")
        return asked


def _at_most(count: int, most: int, what: str) -> None:
    if count > most:
        raise too_large(f"{count} {what}; at most {most} per request")


def _checked(form: type[_M], payload: Mapping[str, Any], kind: str) -> _M:
    known = form.model_fields
    if form.model_config["extra"] == "forbid":
        for key in payload:
            if key not in known:
                advice = nearest(key[:40], known)
                if key.startswith("{"):
                    advice = "send JSON with the header Content-Type: application/json"
                raise bad_request(f"unknown key '{shown(key)}'; {advice}")
    try:
        return form.model_validate(payload, context=kind)
    except pydantic.ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: pydantic.ValidationError) -> Refusal:
    """Says what the first wrong field should be, with all its alternatives."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    field = errors[0]["loc"][0]
    of_field = [each for each in errors if each["loc"][0] == field]
    large = [each for each in of_field if each["type"] in _TOO_LARGE]
    reasons = dict.fromkeys(
        _CLEARER.get(each["type"], "should" + each["msg"].partition("should")[2])
        for each in large or of_field
    )
    said = " or ".join(reasons).replace(" or should", " or")
    return (too_large if large else bad_request)(f"'{field}' {said}")


async def read_payload(
    request: Request, *, limit: int, seconds: float
) -> tuple[Mapping[str, Any], str]:
    """The body of a POST as a mapping, and whether it was `JSON` or `FORM` (texts, or lists of them
    for repeated fields). Raises Refusal."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, FORM):
        raise Refusal(415, f"send {JSON}, or a form as {FORM}", reason="request")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refusal(415, "send the body without content-encoding", reason="request")
    message = f"the body has more than {limit} bytes"
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:19]) > limit:
        raise too_large(message)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large(message)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {seconds:g} s", reason="slow") from None
    except ClientDisconnect:
        raise Refusal(499, "the client disconnected", reason="gone") from None
    return (_parse_json if kind == JSON else _parse_form)(bytes(body)), kind


def _parse_json(body: bytes) -> Mapping[str, Any]:
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("the JSON must be an object")
    return value


def _parse_form(body: bytes) -> Mapping[str, Any]:
    try:
        fields = urllib.parse.parse_qs(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except UnicodeDecodeError:
        raise bad_request("the form is not UTF-8") from None
    except ValueError:
        raise too_large(f"the form has more than {_MOST_FIELDS} fields") from None
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}
