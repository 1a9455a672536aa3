"""What a request may ask for: from a mapping to typed, checked values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from flaxformer_mt.serving.model_info import Model
from flaxformer_mt.serving.refusals import bad_request, too_large, unknown_key
from flaxformer_mt.serving.sentences import Sentences, split_sentences
from flaxformer_mt.serving.settings import ServerSettings

Kind = Literal["cross", "encoder", "decoder"]
KINDS: tuple[Kind, ...] = ("cross", "encoder", "decoder")
OWN_KEYS = {"text", "n_best", "alignment", "sentences", "source", "target", "api_key"}
# Something that is no blank, in the terms of Python and of ECMAScript alike: a JSON schema has it.
VISIBLE = r"[^\s\u001c-\u001f\u0085\ufeff]"
ATTENTION_KEYS = {"text", "translation", "kind", "layer", "api_key"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateRequest:
    """`POST /translate` in either form. `one`: the client sent one text and gets one answer."""

    texts: tuple[Sentences, ...]
    one: bool
    n_best: int
    alignment: bool
    libre: bool  # LibreTranslate's form
    detected: tuple[str, ...] = ()  # the texts, if their language was to be found out


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionRequest:
    text: str
    translation: str | None
    kind: Kind
    layer: int


class Reader:
    """Checks requests against a server's settings and its model. Every method raises Refusal."""

    def __init__(self, model: Model, settings: ServerSettings) -> None:
        self.model, self.settings = model, settings
        self.most_hypotheses = settings.most_hypotheses(model.beam_size)

    def translate(self, payload: Mapping[str, Any], *, form: bool) -> TranslateRequest:
        """LibreTranslate's form has `q`, ours `text`. `form`: all values are texts."""
        if "q" in payload and "text" not in payload:
            return self._libre(payload, form)
        if "text" not in payload:
            raise bad_request("'text' is missing: a text, or a list of texts")
        for key in payload:
            if key not in OWN_KEYS:
                raise unknown_key(key, OWN_KEYS)
        self._languages(payload, {"source": self.model.src_lang, "target": self.model.tgt_lang})
        _check_api_key(payload)
        texts, one = self._texts(payload["text"], "text")
        cut = _flag(payload, "sentences", True, form)
        return TranslateRequest(
            texts=self._cut(texts, cut),
            one=one,
            n_best=_whole(payload, "n_best", 1, 1, self.most_hypotheses, form),
            alignment=_flag(payload, "alignment", False, form),
            libre=False,
        )

    def _libre(self, payload: Mapping[str, Any], form: bool) -> TranslateRequest:
        # Other keys are passed over, as LibreTranslate does: clients send some of their own.
        for key in ("source", "target"):
            if key not in payload:
                raise bad_request(f"'{key}' is missing")
        self._languages(payload, {})
        _check_api_key(payload)
        if payload.get("format", "text") != "text":
            raise bad_request("'format' must be 'text': this server does not translate HTML")
        texts, one = self._texts(payload["q"], "q")
        most = self.most_hypotheses - 1
        return TranslateRequest(
            texts=self._cut(texts, True),
            one=one,
            n_best=_whole(payload, "alternatives", 0, 0, most, form) + 1,
            alignment=False,
            libre=True,
            detected=texts if payload["source"] == "auto" else (),
        )

    def detect(self, payload: Mapping[str, Any]) -> str:
        if "q" not in payload:
            raise bad_request("'q' is missing: the text whose language is asked for")
        if not isinstance(payload["q"], str):
            raise bad_request("'q' must be a text")
        _check_api_key(payload)
        return self._texts(payload["q"], "q")[0][0]

    def attention(self, payload: Mapping[str, Any], *, form: bool) -> AttentionRequest:
        for key in payload:
            if key not in ATTENTION_KEYS:
                raise unknown_key(key, ATTENTION_KEYS)
        _check_api_key(payload)
        texts = [payload.get("text"), payload.get("translation")]
        if not _is_sentence(texts[0]):
            raise bad_request("'text' must be a sentence")
        if texts[1] is not None and not _is_sentence(texts[1]):
            raise bad_request("'translation' must be a sentence, or null for the model's own")
        for text in texts:
            if text is not None:
                self._texts(text, "text")
        kind = payload.get("kind", "cross")
        if kind not in KINDS:
            raise bad_request(f"'kind' must be one of: {', '.join(KINDS)}")
        layers = self.model.encoder_layers if kind == "encoder" else self.model.decoder_layers
        last = layers - 1
        layer = _whole(payload, "layer", last, 0, last, form)
        return AttentionRequest(text=payload["text"], translation=texts[1], kind=kind, layer=layer)

    def _languages(self, payload: Mapping[str, Any], default: Mapping[str, str]) -> None:
        model = self.model
        allowed = {"source": (model.src_lang, "auto"), "target": (model.tgt_lang,)}
        for key, codes in allowed.items():
            if payload.get(key, default.get(key)) not in codes:
                raise bad_request(
                    f"'{key}' must be one of: {', '.join(codes)} "
                    f"(this server translates {model.src_lang} to {model.tgt_lang})"
                )

    def _texts(self, value: Any, key: str) -> tuple[tuple[str, ...], bool]:
        """The texts under a key, and whether it was one and no list."""
        settings = self.settings
        one = isinstance(value, str)
        texts = (value,) if one else value
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise bad_request(f"'{key}' must be a text or a list of texts")
        if not texts:
            raise bad_request(f"'{key}' is an empty list")
        if len(texts) > settings.max_texts:
            raise too_large(f"{len(texts)} texts; at most {settings.max_texts} a request")
        characters = sum(map(len, texts))
        if characters > settings.max_characters:
            raise too_large(f"{characters} characters; at most {settings.max_characters} a request")
        if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
            raise bad_request(f"'{key}' is not Unicode text: it has half a surrogate pair")
        return tuple(texts), one

    def _cut(self, texts: Sequence[str], cut: bool) -> tuple[Sentences, ...]:
        codes = self.model.codes
        parts = tuple(split_sentences(text, at_marks=cut, codes=codes) for text in texts)
        count = sum(len(part.texts) for part in parts)
        if count > self.settings.max_sentences:
            raise too_large(f"{count} sentences; at most {self.settings.max_sentences} a request")
        return parts


def _whole(
    payload: Mapping[str, Any], key: str, default: int, least: int, most: int, form: bool
) -> int:
    value = payload.get(key, default)
    if form and isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value[:9])
    # JSON's 2.0 is the same number as 2, and true is none.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        raise bad_request(f"'{key}' must be a whole number from {least} to {most}")
    return value


def _check_api_key(payload: Mapping[str, Any]) -> None:
    if not isinstance(payload.get("api_key", ""), str):
        raise bad_request("'api_key' must be a text")


def _is_sentence(value: Any) -> bool:
    return isinstance(value, str) and re.search(VISIBLE, value) is not None


def _flag(payload: Mapping[str, Any], key: str, default: bool, form: bool) -> bool:
    value = payload.get(key, default)
    if form and value in ("true", "false"):
        value = value == "true"
    if type(value) is not bool:
        raise bad_request(f"'{key}' must be true or false")
    return value
