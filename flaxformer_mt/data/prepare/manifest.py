"""The manifest of a store: what it was made from, and what became of every pair."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from flaxformer_mt.config.consistency import CORPUS_SETTINGS
from flaxformer_mt.config.schema import (
    CorpusConfig,
    DataConfig,
    FilterConfig,
    VocabularyConfig,
)
from flaxformer_mt.errors import UserError
from flaxformer_mt.files.reading import JsonError, load_json

FORMAT = 1
MANIFEST = "manifest.json"

# Drawn anew from the stored pairs in every epoch.
_NOT_STORED = ("sampling",)


class PrepareError(UserError):
    """Data that cannot be prepared, or that is not what the run directory was prepared from."""


def named_corpora(config: DataConfig) -> list[tuple[str, str, CorpusConfig]]:
    """The split, the configuration key and the settings of each corpus that is prepared."""
    train = [("train", f"data.train.{corpus.name}", corpus) for corpus in config.train]
    return [*train, ("valid", "data.valid", config.valid)]


def settings_of(config: DataConfig, seed: int) -> dict[str, Any]:
    """What decides the store's contents, flat; files count by their contents, not their places."""
    settings: dict[str, Any] = {
        "training.seed": seed,
        "data.src_lang": config.src_lang,
        "data.tgt_lang": config.tgt_lang,
        "data.train": [corpus.name for corpus in config.train],
    }
    for split, key, corpus in named_corpora(config):
        settings[f"{key}.kind"] = corpus.kind
        for name in CORPUS_SETTINGS[corpus.kind].contents:
            settings[f"{key}.{name}"] = getattr(corpus, name)
        if split == "train":
            settings[f"{key}.weight"] = corpus.weight
    for room in ("vocabulary", "filter"):
        for name, value in dataclasses.asdict(getattr(config, room)).items():
            if name not in _NOT_STORED:
                # As JSON has it.
                plain = list(value) if isinstance(value, tuple) else value
                settings[f"data.{room}.{name}"] = plain
    return settings


def changed_settings(recorded: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Each setting that differs, as "KEY: THEN then, NOW now".

    A setting that an older program did not know had what is its default now. Languages decide which
    script is dropped, and nothing where none is.
    """
    then = {key: _default(key) for key in wanted if key not in recorded} | recorded
    if not (then["data.filter.script"] or wanted["data.filter.script"]):
        then |= {key: wanted[key] for key in ("data.src_lang", "data.tgt_lang")}
    return [
        f"{key}: {then.get(key, 'not set')!r} then, {wanted.get(key, 'not set')!r} now"
        for key in sorted(then.keys() | wanted.keys())
        if then.get(key) != wanted.get(key)
    ]


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest in a store's folder.

    Raises:
      PrepareError: it is missing, damaged or of another format.
    """
    path = directory / MANIFEST
    place = os.path.realpath(directory) if isinstance(directory, Path) else directory  # gs://
    advice = f"; delete {place} and run `prepare` again"
    try:
        manifest = load_json(path)
        if manifest["format"] != FORMAT:
            raise PrepareError(
                f"{path}: has format {manifest['format']}; this program reads {FORMAT}"
            )
        for key in ("settings", "inputs", "corpora", "vocabulary", "store"):
            manifest[key]
    except OSError as error:
        advice = advice if isinstance(error, FileNotFoundError) else ""
        raise PrepareError(f"{path}: cannot be read: {error.strerror}{advice}") from error
    except JsonError as error:
        raise PrepareError(f"{error}{advice}") from error
    except (KeyError, TypeError) as error:
        raise PrepareError(f"{path}: is damaged: {error!r}{advice}") from error
    return manifest


def _default(key: str) -> Any:
    group, _, name = key.rpartition(".")
    rooms = {"data.vocabulary": VocabularyConfig, "data.filter": FilterConfig}
    value = getattr(rooms.get(group, CorpusConfig)(), name, "not set")
    return list(value) if isinstance(value, tuple) else value
