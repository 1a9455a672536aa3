"""What the page, and LibreTranslate's clients, are told of a server."""

from __future__ import annotations

from typing import Any

from flaxformer_mt.serving.languages import direction, language_name
from flaxformer_mt.serving.served import Model
from flaxformer_mt.serving.settings import ServerSettings


def page_settings(model: Model, settings: ServerSettings) -> dict[str, Any]:
    """LibreTranslate's keys, and under "model" and "limits" what our page shows besides."""
    source, target = (
        {"code": code, "name": language_name(code)} for code in (model.src_lang, model.tgt_lang)
    )
    return {
        "apiKeys": bool(settings.keys),
        "keyRequired": bool(settings.keys),
        "charLimit": settings.max_characters,
        "frontendTimeout": 250,
        "language": {"source": source, "target": target},
        "suggestions": False,
        "supportedFilesFormat": [],
        "model": {
            "name": model.name,
            "weights": model.weights,
            "source_direction": direction(model.src_lang),
            "target_direction": direction(model.tgt_lang),
            "encoder_layers": model.encoder_layers,
            "decoder_layers": model.decoder_layers,
        },
        "limits": {
            "n_best": settings.most_hypotheses(model.beam_size),
            "characters": settings.max_characters,
        },
        "examples": list(settings.examples),
    }
