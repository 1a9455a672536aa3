"""The manifest of a store: what it was made from, and what became of every pair."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer

from flaxformer_mt.config.schema import CorpusConfig, DataConfig

FORMAT = 1
MANIFEST = "manifest.json"


class PrepareError(ValueError):
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
    for _, key, corpus in named_corpora(config):
        settings[f"{key}.kind"] = corpus.kind
        if corpus.kind == "synthetic":
            settings[f"{key}.split"] = corpus.split
            settings[f"{key}.size"] = corpus.size
    for room in ("vocabulary", "filter"):
        for name, value in dataclasses.asdict(getattr(config, room)).items():
            settings[f"data.{room}.{name}"] = value
    return settings


def read_manifest(directory: str | Path) -> dict[str, Any]:
    """The manifest in a store's folder.

    Raises:
      PrepareError: it is missing, damaged or of another format.
    """
    path = Path(directory) / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["format"] != FORMAT:
            raise PrepareError(
                f"{path}: has format {manifest['format']}; this program reads {FORMAT}"
            )
    except OSError as error:
        raise PrepareError(f"{path}: cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise PrepareError(f"{path}: is damaged: {error!r}") from error
    return manifest


def summary(lengths: Integer[np.ndarray, " pairs"]) -> dict[str, Any]:
    """Lengths in tokens, the end mark included."""
    percent = np.percentile(lengths, [50, 95, 99])
    return {
        "tokens": int(lengths.sum(dtype=np.int64)),
        "mean": round(float(lengths.mean()), 2),
        "median": round(float(percent[0]), 1),
        "p95": round(float(percent[1]), 1),
        "p99": round(float(percent[2]), 1),
        "max": int(lengths.max()),
    }


def describe(manifest: dict[str, Any]) -> str:
    """The manifest as a table for people: pairs read, kept and dropped, examples, lengths."""
    lines = [f"{'corpus':<32}{'read':>12}{'kept':>12}{'dropped':>12}"]
    for account in manifest["corpora"]:
        dropped = sum(account["dropped"].values())
        lines.append(
            f"{account['key']:<32}{account['read']:>12,}{account['kept']:>12,}{dropped:>12,}"
        )
        for reason, count in account["dropped"].items():
            lines.append(f"  {reason:<54}{count:>12,}")
            for example in account["examples"]:
                if example["reason"] == reason:
                    lines.append(f"    {example['file']}:{example['line']}: {example['detail']}")
    lines.append("")
    lines.append(
        f"{'tokens':<14}{'total':>14}{'mean':>9}{'median':>9}{'p95':>9}{'p99':>9}{'max':>7}"
    )
    for split, sides in manifest["lengths"].items():
        for side, summary in sides.items():
            lines.append(
                f"{split + ' ' + side:<14}{summary['tokens']:>14,}{summary['mean']:>9.1f}"
                f"{summary['median']:>9.0f}{summary['p95']:>9.0f}{summary['p99']:>9.0f}"
                f"{summary['max']:>7}"
            )
    return "\n".join(lines)
