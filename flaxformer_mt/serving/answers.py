"""From results to what clients get as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.serving.engine import Attended, Translated
from flaxformer_mt.serving.model_info import confidence
from flaxformer_mt.serving.requests import AttentionRequest, TranslateRequest
from flaxformer_mt.serving.sentences import Sentences

DECIMALS = 4  # of attention weights: more would be shown by no picture


def translations(request: TranslateRequest, found: Sequence[Sequence[Translated]]) -> Any:
    """Our form: each text with its sentences, and each sentence with its hypotheses."""
    return {
        "translations": [
            {
                "text": text.joined([each.translation.text for each in sentences]),
                "sentences": [_sentence(request, each) for each in sentences],
            }
            for text, sentences in zip(request.texts, found, strict=True)
        ]
    }


def _sentence(request: TranslateRequest, found: Translated) -> dict[str, Any]:
    hypotheses: list[dict[str, Any]] = [
        {"text": each.text, "score": each.score, "log_prob": each.log_prob}
        for each in found.translation.hypotheses[: request.n_best]
    ]
    if request.alignment:
        for hypothesis, alignment in zip(hypotheses, found.alignments, strict=False):
            hypothesis["alignment"] = None if alignment is None else _alignment(alignment)
    return {
        "source": found.source,
        **({"code": found.code} if found.code else {}),
        "split": found.translation.split,
        "at_limit": found.translation.at_limit,
        "hypotheses": hypotheses,
    }


def _alignment(alignment: Alignment) -> dict[str, Any]:
    return {
        "source_words": list(alignment.src_words),
        "target_words": list(alignment.tgt_words),
        "links": [list(link) for link in alignment.links],
    }


def libre_translation(
    request: TranslateRequest, found: Sequence[Sequence[Translated]], src_lang: str
) -> dict[str, Any]:
    """LibreTranslate's form. The n-th alternative joins each sentence's n-th, or its last."""
    ranked = [
        [_joined(text, sentences, rank) for rank in range(request.n_best)]
        for text, sentences in zip(request.texts, found, strict=True)
    ]
    answer: dict[str, Any] = {"translatedText": [texts[0] for texts in ranked]}
    if request.n_best > 1:
        # Once each: a text of one sentence may have fewer translations than were asked for.
        answer["alternatives"] = [
            [text for text in dict.fromkeys(texts) if text != texts[0]] for texts in ranked
        ]
    if request.detected:
        answer["detectedLanguage"] = [detected(text, src_lang) for text in request.detected]
    return {key: values[0] for key, values in answer.items()} if request.one else answer


def _joined(text: Sentences, found: Sequence[Translated], rank: int) -> str:
    hypotheses = [each.translation.hypotheses for each in found]
    return text.joined([each[min(rank, len(each) - 1)].text for each in hypotheses])


def detected(text: str, src_lang: str) -> dict[str, Any]:
    return {"language": src_lang, "confidence": confidence(text, src_lang)}


def attention(request: AttentionRequest, found: Attended) -> bytes:
    """One layer of one kind of attention, as JSON: each row of each head sums to 1.

    For a thread of its own. It is written row by row: in one piece it would hold the interpreter,
    and with it all other requests, until the last number.
    """
    about = {
        "text": request.text,
        "translation": found.translation,
        "kind": request.kind,
        "layer": request.layer,
        "layers": found.layers,
        "heads": len(found.weights),
        "rows": list(found.rows),
        "columns": list(found.columns),
    }
    heads = ",".join(f"[{','.join(_row(row) for row in head)}]" for head in found.weights)
    return b'%b,"weights":[%b]}' % (as_json(about)[:-1], heads.encode())


def _row(weights: Float32[np.ndarray, " columns"]) -> str:
    return as_json(np.round(weights.astype(np.float64), DECIMALS).tolist()).decode()


def as_json(content: Any) -> bytes:
    """UTF-8, without blanks. Raises ValueError for what JSON has no number for."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8")
