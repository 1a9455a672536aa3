"""The files of a Hugging Face Marian checkpoint, read and told apart by what is wrong with them."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flaxformer_mt.export import ExportError
from flaxformer_mt.files.reading import JsonError, load_json

SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarianFolder:
    """Everything that is used of a checkpoint; `vocab` and `target_vocab` are piece -> id."""

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    vocab: Mapping[str, int]
    target_vocab: Mapping[str, int]
    source_spm: bytes
    target_spm: bytes
    state: Mapping[str, np.ndarray]


def read_folder(path: str | os.PathLike[str]) -> MarianFolder:
    """Reads a checkpoint. Raises ExportError naming the file and what to do."""
    folder = Path(path)
    if not folder.is_dir():
        advice = "; download the model first, and name its folder" if not folder.exists() else ""
        raise ExportError(f"{folder}: is no folder{advice}")
    if not (folder / "config.json").exists():
        raise ExportError(
            f"{folder}: has no config.json: name the folder of a Hugging Face Marian model"
        )
    config = _json(folder / "config.json")
    if (kind := config.get("model_type")) != "marian":
        raise ExportError(
            f"{folder / 'config.json'}: model_type is {kind!r}; only 'marian' can be imported"
        )
    vocab = _vocab(folder / "vocab.json")
    separate = (folder / "target_vocab.json").exists()
    return MarianFolder(
        path=folder,
        config=config,
        generation=_json(folder / "generation_config.json", optional=True),
        tokenizer=_json(folder / "tokenizer_config.json", optional=True),
        vocab=vocab,
        target_vocab=_vocab(folder / "target_vocab.json") if separate else vocab,
        source_spm=_bytes(folder / "source.spm"),
        target_spm=_bytes(folder / "target.spm"),
        state=_state(folder),
    )


def _state(folder: Path) -> dict[str, np.ndarray]:
    if (file := folder / SAFETENSORS).exists():
        try:
            return importlib.import_module("safetensors.numpy").load_file(str(file))
        except ImportError as error:
            raise ExportError(
                f"{file}: is read by the package safetensors, which is not installed: "
                "pip install 'flaxformer-mt[export]'"
            ) from error
        except Exception as error:  # its own error types, by version
            raise ExportError(f"{file}: cannot be read: {_first_line(error)}") from error
    if not (file := folder / PICKLED).exists():
        raise ExportError(
            f"{folder}: holds neither {SAFETENSORS} nor {PICKLED}; download one of them"
        )
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ExportError(
            f"{file}: is read by PyTorch, which is not installed: pip install torch, or download "
            f"the model's {SAFETENSORS}, which needs none"
        ) from error
    try:
        # Arrays only: a pickle may otherwise run anything.
        loaded = torch.load(str(file), map_location="cpu", weights_only=True)
        return {name: tensor.float().numpy() for name, tensor in loaded.items()}
    except Exception as error:
        raise ExportError(f"{file}: cannot be read: {_first_line(error)}") from error


def _json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.exists():
        return {}
    try:
        content = load_json(path)
    except JsonError as error:
        raise ExportError(str(error)) from error
    except OSError as error:
        raise _unread(path, error) from error
    if not isinstance(content, dict):
        raise ExportError(f"{path}: is not a JSON object")
    return content


def _vocab(path: Path) -> dict[str, int]:
    vocab = _json(path)
    if wrong := [piece for piece, number in vocab.items() if type(number) is not int or number < 0]:
        raise ExportError(f"{path}: {wrong[0]!r} has no whole number for an id")
    if len(set(vocab.values())) < len(vocab):
        raise ExportError(f"{path}: two pieces have the same id")
    return vocab


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unread(path, error) from error


def _unread(path: Path, error: OSError) -> ExportError:
    return ExportError(f"{path}: cannot be read: {error.strerror}")


def _first_line(error: Exception) -> str:
    first = (str(error) or type(error).__name__).split("\n")[0]
    return "".join(each if each.isprintable() else " " for each in first)
