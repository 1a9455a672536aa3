"""Requests: from a body's bytes, with limits, to typed and checked values."""

import asyncio
import contextlib
import dataclasses
import email.message
import email.parser
import functools
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import pydantic
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    create_model,
)
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from flaxformer_mt.decoding.text.coded_sentences import (
    CodedSentences,
    coded_sentences,
    untranslated,
)
from flaxformer_mt.errors import nearest
from flaxformer_mt.markup.document import Document, MarkupError
from flaxformer_mt.markup.html import read_html_or_text
from flaxformer_mt.markup.opening import ENDINGS, OpenedFile, endings, open_file
from flaxformer_mt.serving.access import Refusal, bad_request, shown, too_large
from flaxformer_mt.serving.language_codes import known_code
from flaxformer_mt.serving.served_model import ServedModel
from flaxformer_mt.serving.settings import ServerSettings

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
Kind = Literal["cross", "encoder", "decoder"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# A non-blank character, as Rust, Python and ECMAScript all define it.
_VISIBLE = r"[^\s\u001c-\u001f\u0085\ufeff]"
# Bounds the tables of a search: a forbidden character costs a row over the vocabulary.
_Phrase = Annotated[str, Field(pattern=_VISIBLE, max_length=60)]
_MOST_FIELDS = 100  # of a form
_MOST_HEAD_BYTES = 1000  # of a field's head in a multipart form
_PLAIN_CODING = ("7bit", "8bit", "binary")
KEEP = "URLs, e-mail addresses, placeholders and emoji stay as they are"
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


def _count(value: Any) -> Any:
    """LibreTranslate's number: `int(value)`, at least 0; an empty field has none."""
    if value is None or value == "":
        return 0
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?[0-9]+\s*", value):
        return max(0, int(value[:9]))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return max(0, value) if type(value) is int else value


_Count = Annotated[
    int,
    BeforeValidator(_count),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer"},
                {"type": "string", "pattern": "^([0-9]{1,9})?$"},
                {"type": "null"},
            ],
            "default": 0,
        }
    ),
]
_ApiKey = Annotated[str | None, Field(description="LibreTranslate's; no key: null or empty")]


class _Body(pydantic.BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


def _nullable(schema: dict[str, Any], others: Sequence[str]) -> None:
    """Makes the schema say what `_given` does: null fields, also the other form's, are ignored."""
    properties = schema["properties"]
    for name, form in properties.items():
        if name in schema["required"] or "anyOf" in form:
            continue
        if isinstance(form.get("type"), str):
            form["type"] = [form["type"], "null"]
        if "const" in form:
            form["enum"] = [form.pop("const")]
        if None not in form.get("enum", [None]):
            form["enum"] = [*form["enum"], None]
    properties |= {name: {"type": "null"} for name in others}


# For mypy: types of all fields. Reader adds the server's bounds to some of them.


class TranslateRequest(_Body):
    model_config = ConfigDict(
        json_schema_extra=lambda schema: _nullable(schema, ("q", "alternatives"))
    )
    text: str | list[str]
    n_best: int = 1
    alignment: Annotated[bool, _PLAIN] = False
    sentences: Annotated[bool, _PLAIN] = Field(
        default=True, description="split texts at sentence ends, not only at line ends"
    )
    keep: Annotated[bool, _PLAIN] = Field(default=True, description=KEEP)
    terms: dict[_Phrase, _Phrase] = Field(
        default={},
        max_length=60,
        description="how to translate these terms of the source",
        # Otherwise the schema would allow any value under a blank key.
        json_schema_extra={"additionalProperties": False},
    )
    forbid: list[_Phrase] = Field(
        default=[], max_length=20, description="phrases that no translation may contain"
    )
    format: Literal["text", "html"] = Field(
        default="text", description="`html`: tags stay with their words"
    )
    source: str
    target: str
    api_key: _ApiKey = None

    @property
    def given(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text


class LibreTranslateRequest(_Body):
    # Clients send keys of their own, which LibreTranslate ignores. A body with "text" is our form.
    model_config = ConfigDict(
        extra="ignore", json_schema_extra=lambda schema: _nullable(schema, ("text",))
    )
    q: str | list[str]
    source: str
    target: str
    format: Literal["text", "html", ""] = Field(
        default="text", description="`html`: tags stay with their words"
    )
    alternatives: _Count = Field(
        default=0, description="how many more translations; there may be fewer"
    )
    api_key: _ApiKey = None
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
    q: str | list[str]
    api_key: _ApiKey = None


class AttentionRequest(_Body):
    text: str
    translation: str | None = None
    kind: Kind = "cross"
    layer: int
    api_key: _ApiKey = None


@dataclasses.dataclass(frozen=True)
class TranslateTask:
    form: TranslateRequest | LibreTranslateRequest
    texts: tuple[CodedSentences, ...]
    n_best: int  # of the request, but at most the beam's size
    direction: tuple[str, str]  # the source language and the target language
    keep: bool = True
    documents: tuple[Document, ...] = ()  # HTML: their segments are the `texts`

    @property
    def aligned(self) -> list[int]:
        """How many of each text's translations need alignments."""
        if self.form.alignment or not self.documents:
            return [self.n_best * self.form.alignment] * len(self.texts)
        return [
            self.n_best * segment.needs_alignment
            for document in self.documents
            for segment in document.segments
        ]


@dataclasses.dataclass(frozen=True)
class Upload:
    """A file that a form has as its field `file`."""

    name: str  # printable, without folders
    content: bytes


@dataclasses.dataclass(frozen=True)
class FileTask:
    """A file to translate."""

    name: str
    task: TranslateTask
    opened: OpenedFile


class Reader:
    """Checks requests against a server's settings and its model. `kind` is JSON or FORM. Every
    method raises Refusal."""

    def __init__(self, model: ServedModel, settings: ServerSettings) -> None:
        self.model, self.settings = model, settings
        self.most_hypotheses = settings.most_hypotheses(model.beam_size)
        self._layers: dict[Kind, int] = dict.fromkeys(KINDS, model.decoder_layers)
        self._layers["encoder"] = model.encoder_layers
        text: Any = Annotated[str, Field(max_length=settings.max_characters)]
        # `fail_fast`: a list of a million numbers is one error.
        list_of_texts = Annotated[
            list[text], Field(min_length=1, max_length=settings.max_texts, fail_fast=True)
        ]
        texts: Any = text | list_of_texts
        sentence: Any = Annotated[text, Field(pattern=_VISIBLE)]
        source: Any = Literal[(*model.sources, "auto")]
        target: Any = Literal[model.targets]
        # In LibreTranslate's form, a text may also stay in its language, whichever that is.
        libre_source: Any = Literal[(*model.languages, "auto")]
        libre_target: Any = Literal[model.languages]
        known_source = BeforeValidator(functools.partial(_as_known, model, model.sources))
        known_target = BeforeValidator(functools.partial(_as_known, model, model.targets))

        def integer(least: int, most: int) -> Any:
            return Annotated[int, Field(ge=least, le=most), _PLAIN]

        self.translate_form = create_model(
            "TranslateRequest",
            __base__=TranslateRequest,
            text=texts,
            n_best=(integer(1, self.most_hypotheses), 1),
            keep=(
                Annotated[bool, _PLAIN],
                Field(default=settings.keep, description=KEEP),
            ),
            source=(
                Annotated[source, known_source],
                model.src_lang if len(model.directions) == 1 else "auto",
            ),
            target=(Annotated[target, known_target], model.tgt_lang),
        )
        self.libre_form = create_model(
            "LibreTranslateRequest",
            __base__=LibreTranslateRequest,
            q=texts,
            source=Annotated[libre_source, known_source],
            target=Annotated[libre_target, known_target],
        )
        self.detect_form = create_model("DetectRequest", __base__=DetectRequest, q=texts)
        last_layer = Field(default_factory=lambda fields: self._layers[fields["kind"]] - 1)
        self.attention_form = create_model(
            "AttentionRequest",
            __base__=AttentionRequest,
            text=sentence,
            translation=(sentence | None, None),
            layer=(integer(0, max(self._layers.values()) - 1), last_layer),
        )

    def translate(self, payload: Mapping[str, Any], kind: str = JSON) -> TranslateTask:
        """LibreTranslate's form has `q`, ours `text`."""
        payload = _given(payload, kind)
        if "q" not in payload or "text" in payload:
            return self._task(_checked(self.translate_form, payload, kind), kind)
        with _limits_as_in_libretranslate():
            return self._task(_checked(self.libre_form, payload, kind), kind)

    def _task(self, form: Any, kind: str) -> TranslateTask:
        if (form.terms or form.forbid) and not self.settings.constraints:
            raise bad_request(
                "this server takes neither 'terms' nor 'forbid' (--no-constraints, or --runtime)"
            )

        direction = self._direction(form)
        texts = _given_texts(form, kind)
        _at_most(sum(map(len, texts)), self.settings.max_characters, "characters")
        n_best = min(form.n_best, self.most_hypotheses)
        if direction[0] == direction[1]:
            return TranslateTask(
                form, tuple(map(untranslated, texts)), n_best, direction, keep=False
            )
        keep = _keeps(form, self.settings)
        documents = _documents(texts) if form.format == "html" else ()
        if documents:
            texts = [segment.text for document in documents for segment in document.segments]
        split_texts = tuple(self._split(text, direction, keep, form.sentences) for text in texts)
        sentence_count = sum(len(text.texts) for text in split_texts)
        _at_most(sentence_count, self.settings.max_sentences, "sentences")
        return TranslateTask(form, split_texts, n_best, direction, keep, documents)

    def _split(
        self, text: str, direction: tuple[str, str], keep: bool, at_marks: bool = True
    ) -> CodedSentences:
        return coded_sentences(
            text,
            direction[0],
            at_marks=at_marks,
            codes=self.model.codes,
            code=self.model.tag_of(direction),
            together=self.model.together,
            keep=keep,
        )

    def file(self, payload: Mapping[str, Any], upload: Upload) -> FileTask:
        """A file to translate, in LibreTranslate's form."""
        known = {name: payload[name] for name in ("source", "target") if payload.get(name)}
        form: Any = _checked(self.libre_form, {**known, "q": ""}, FORM)
        direction = self._direction(form)
        ending = upload.name[upload.name.rfind(".") :].lower()
        if ending not in endings():
            *others, last = endings()
            raise bad_request(f"the file's name must end with {', '.join(others)} or {last}")
        try:
            opened = open_file(upload.content, ENDINGS[ending])
        except MarkupError as error:
            raise bad_request(str(error)) from error
        if direction[0] == direction[1]:
            opened = OpenedFile([], lambda _: upload.content)
        segments = [segment.text for document in opened.documents for segment in document.segments]
        keep = self.settings.keep
        texts = tuple(self._split(text, direction, keep) for text in segments)
        count = sum(len(text.texts) for text in texts)
        _at_most(count, self.settings.max_file_sentences, "sentences")
        task = TranslateTask(form, texts, 1, direction, keep, tuple(opened.documents))
        return FileTask(upload.name, task, opened)

    def _direction(self, form: TranslateRequest | LibreTranslateRequest) -> tuple[str, str]:
        """The direction that a request asks for. Where it leaves a language open, the model's first
        direction decides, or else the order. Raises Refusal for a pair that isn't a direction."""
        model = self.model
        if form.source == form.target and isinstance(form, LibreTranslateRequest):
            return form.source, form.target
        target_given = "target" in form.model_fields_set
        fitting = [
            (source, target)
            for source, target in model.directions
            if form.source in (source, "auto") and (form.target == target or not target_given)
        ]
        if not fitting:
            known = model.targets if form.source == "auto" else model.targets_of(form.source)
            if not known:
                raise bad_request(f"'source' should be {_either((*model.sources, 'auto'))}")
            raise bad_request(f"'target' should be {_either(known)} for the source '{form.source}'")
        return max(
            fitting, key=lambda pair: (pair[0] == model.src_lang) + (pair[1] == model.tgt_lang)
        )

    def detect(self, payload: Mapping[str, Any], kind: str = JSON) -> str:
        """The text; several are one."""
        texts = _checked(self.detect_form, payload, kind).q
        return texts if isinstance(texts, str) else "\n".join(texts)

    def attention(self, payload: Mapping[str, Any], kind: str = JSON) -> AttentionRequest:
        form = _checked(self.attention_form, payload, kind)
        last_layer = self._layers[form.kind] - 1
        if form.layer > last_layer:
            raise bad_request(f"'layer' should be less than or equal to {last_layer}")
        return form


@contextlib.contextmanager
def _limits_as_in_libretranslate() -> Iterator[None]:
    """What is too large gets the status of other wrong requests."""
    try:
        yield
    except Refusal as refusal:
        if refusal.status == 413:
            refusal.status = 400
        raise


def _either(codes: Sequence[str]) -> str:
    *others, last = map(repr, codes)
    return f"{', '.join(others)} or {last}" if others else last


def _keeps(form: TranslateRequest | LibreTranslateRequest, settings: ServerSettings) -> bool:
    return form.keep if isinstance(form, TranslateRequest) else settings.keep


def _given_texts(form: TranslateRequest | LibreTranslateRequest, kind: str) -> list[str]:
    if kind != FORM or isinstance(form, TranslateRequest):
        return form.given
    # A form has CRLF for every line break.
    return [text.replace("\r\n", "\n") for text in form.given]


def _documents(texts: Sequence[str]) -> tuple[Document, ...]:
    """The texts as HTML. Raises Refusal."""
    try:
        return tuple(map(read_html_or_text, texts))
    except MarkupError as error:
        raise bad_request(str(error)) from error


def _given(payload: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The payload without fields that are null, or empty in a form: these aren't given.

    A text may be empty: its translation is. Unknown keys stay, to be refused.
    """
    known = {*TranslateRequest.model_fields, *LibreTranslateRequest.model_fields}
    may_be_empty = known - {"q", "text"}
    return {
        key: value
        for key, value in payload.items()
        if not (value is None and key in known)
        and not (value == "" and kind == FORM and key in may_be_empty)
    }


def _as_known(model: ServedModel, of_side: Sequence[str], code: Any) -> Any:
    """The model's code for the language that a client means, if possible one `of_side`; else `code`
    itself."""
    if not isinstance(code, str):
        return code
    known = known_code(of_side, code)
    return known if known in of_side else known_code(model.languages, code)


def _at_most(count: int, most: int, what: str) -> None:
    if count > most:
        raise too_large(f"{count} {what}; at most {most} per request")


def _checked(form: type[_M], payload: Mapping[str, Any], kind: str) -> _M:
    known = form.model_fields
    if form.model_config["extra"] == "forbid":
        for key in payload:
            if key not in known:
                if key.startswith("{"):
                    raise bad_request(
                        f"unknown key '{shown(key)}'; "
                        "send JSON with the header Content-Type: application/json"
                    )
                raise bad_request(f"unknown key '{shown(key)}'; {nearest(key[:40], known)}")
    try:
        return form.model_validate(payload, context=kind)
    except pydantic.ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: pydantic.ValidationError) -> Refusal:
    """Says what the first wrong field should be, with all its alternatives."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    field = errors[0]["loc"][0]
    of_field = [detail for detail in errors if detail["loc"][0] == field]
    too_long = [detail for detail in of_field if detail["type"] in _TOO_LARGE]
    reasons = dict.fromkeys(
        _CLEARER.get(detail["type"], "should" + detail["msg"].partition("should")[2])
        for detail in too_long or of_field
    )
    message = f"'{field}' " + " or ".join(reasons).replace(" or should", " or")
    return too_large(message) if too_long else bad_request(message)


async def read_payload(
    request: Request, *, limit: int, seconds: float
) -> tuple[Mapping[str, Any], str]:
    """A POST as a mapping, and whether it was `JSON` or `FORM` (texts; lists for repeated fields).

    A form has the address's parameters, too, like Flask's `request.values`, which LibreTranslate
    reads; then its body may be empty. Raises Refusal.
    """
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    is_json = kind == JSON or (kind.startswith("application/") and kind.endswith("+json"))
    query = request.scope["query_string"]
    if not (is_json or kind in (FORM, MULTIPART) or (query and _is_empty(request))):
        raise Refusal(415, f"send {JSON}, or a form as {FORM} or {MULTIPART}", reason="request")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refusal(415, "send the body without content-encoding", reason="request")
    body = await _read_body(request, limit=limit, seconds=seconds)
    if is_json:
        return _parse_json(body), JSON
    fields = _parse_multipart(body, content_type) if kind == MULTIPART else _parse_form(body)
    return {**fields, **_parse_form(query)}, FORM


def _is_empty(request: Request) -> bool:
    """Whether no body is announced."""
    headers = request.headers
    return "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"


async def _read_body(request: Request, *, limit: int, seconds: float) -> bytes:
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
    return bytes(body)


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
    return _single(fields)


async def read_upload(
    request: Request, *, limit: int, seconds: float
) -> tuple[Mapping[str, Any], Upload]:
    """A multipart form's fields of text, and its file. Raises Refusal."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != MULTIPART:
        raise Refusal(415, f"send the file in a form as {MULTIPART}", reason="request")
    body = await _read_body(request, limit=limit, seconds=seconds)
    files: dict[str, Upload] = {}
    fields = _parse_multipart(body, content_type, files)
    if "file" not in files:
        raise bad_request("'file' is missing")
    return fields, files["file"]


def _parse_multipart(
    body: bytes, content_type: str, files: dict[str, Upload] | None = None
) -> Mapping[str, Any]:
    """Fields of text (RFC 7578); files are put into `files`, if given, and else refused. Raises
    Refusal.

    Leaves out everything before the first boundary and after the last. The standard library reads
    only the fields' heads: its parser for mail could change line ends in a whole form.
    """
    # Cut short, since the parser takes time quadratic in the length.
    try:
        boundary = _headers(f"Content-Type: {content_type[:_MOST_HEAD_BYTES]}").get_boundary()
    except ValueError:  # as for a file's name
        boundary = None
    if not boundary:
        raise bad_request(f"{MULTIPART} needs a boundary in its Content-Type")
    delimiter = b"\r\n--" + boundary.encode("latin-1", "replace")
    _, *parts = (b"\r\n" + body).split(delimiter, _MOST_FIELDS + 2)
    fields: dict[str, list[str]] = {}
    for number, part in enumerate(parts):
        if part.startswith(b"--"):
            return _single(fields)
        if number == _MOST_FIELDS:
            raise too_large(f"the form has more than {_MOST_FIELDS} fields")
        name, value = _parse_part(part, takes_files=files is not None)
        if isinstance(value, Upload) and files is not None:
            if name in files:
                raise bad_request(f"'{shown(name)}' is there twice: send one file per request")
            files[name] = value
        else:
            fields.setdefault(name, []).append(str(value))
    raise bad_request("the multipart form does not end with its boundary")


def _parse_part(part: bytes, *, takes_files: bool) -> tuple[str, str | Upload]:
    """A field's name and text, or file; `part` begins where its boundary ends."""
    padding, line_end, field = part.partition(b"\r\n")
    head, blank_line, value = (b"\r\n" + field).partition(b"\r\n\r\n")
    if padding.strip() or not line_end or not blank_line or len(head) > _MOST_HEAD_BYTES:
        raise bad_request("a field of the multipart form has no head")
    headers = _headers(_utf8(head))
    name = headers.get_param("name", header="content-disposition")
    if headers.get_content_disposition() != "form-data" or not isinstance(name, str):
        raise bad_request("a field of the multipart form has no name")
    file_name = _file_name(headers)
    if file_name is not None and not takes_files:
        raise bad_request("no file is translated here: use /translate_file, or the field 'q'")
    if str(headers.get("content-transfer-encoding", "7bit")).strip().lower() not in _PLAIN_CODING:
        raise bad_request("send fields without Content-Transfer-Encoding")
    if file_name is not None:
        return name, Upload(file_name, value)
    return name, _utf8(value)


def _file_name(headers: email.message.Message) -> str | None:
    """A file's name, without folders and with "_" for what can't be shown; None: it's no file."""
    try:
        name = headers.get_filename()
    except ValueError:  # an encoding that Python knows and can't use, such as "undefined"
        raise bad_request("the file's name has an unknown encoding") from None
    if name is None:
        return None
    name = re.split(r"[/\\]", name)[-1]
    return "".join(character if character.isprintable() else "_" for character in name)


def _utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise bad_request("the form is not UTF-8") from None


def _headers(text: str) -> email.message.Message:
    return email.parser.HeaderParser().parsestr(text.removeprefix("\r\n"))


def _single(fields: Mapping[str, list[str]]) -> Mapping[str, Any]:
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}
