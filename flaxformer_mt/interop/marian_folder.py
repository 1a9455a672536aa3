"""A Hugging Face Marian model's folder, local or on the hub: its files, types and arrays."""

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flaxformer_mt.data.type_table import MARKS, AddedToken, TypeTable
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.files import hub
from flaxformer_mt.files.reading import json_errors_as, load_json
from flaxformer_mt.interop import ExportError, package_of_extra
from flaxformer_mt.interop.generation import decoder_start
from flaxformer_mt.interop.huggingface import read_numbering
from flaxformer_mt.interop.marian import UNUSED, Types
from flaxformer_mt.interop.runner import NUMBERING

SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
# Of a repository on the hub, which may hold the same weights for other programs too.
_SMALL_FILES = (
    *("config.json", "generation_config.json", "tokenizer_config.json", "added_tokens.json"),
    *("vocab.json", "target_vocab.json", "source.spm", "target.spm", NUMBERING),
    *(f"{weights}.index.json" for weights in (SAFETENSORS, PICKLED)),
)


class Folder(NamedTuple):
    """A folder's content, without its arrays."""

    path: Path
    name: str
    origin: str
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    vocab: Mapping[str, int]
    target_vocab: Mapping[str, int]
    added: Mapping[AddedToken, int]  # tokens with their ids in the source's vocabulary
    numbering: Mapping[str, Sequence[int]] | None  # this program's own, if it wrote the folder


def read_folder(place: str | os.PathLike[str]) -> Folder:
    """Reads a local folder, or one on the hub. Raises ExportError and HubError."""
    folder = Path(place)
    name, origin = folder.resolve().name, str(place)
    commit: hub.Address | None = None
    if not folder.exists() and (repository := hub.address(str(place))) is not None:
        try:
            folder = hub.fetch(repository, _SMALL_FILES)
        except hub.HubError as error:
            raise hub.HubError(f"{place}: no such folder here; {error}") from error
        commit = repository._replace(revision=folder.name)
        name, origin = repository.name.partition("/")[2], str(commit)
    if not folder.exists():
        raise ExportError(
            f"{folder}: no such folder; give a downloaded model's folder, or ORG/MODEL on the hub"
        )
    if not folder.is_dir():
        raise ExportError(f"{folder}: no such folder")
    if not (folder / "config.json").exists():
        raise ExportError(
            f"{folder}: has no config.json of a Hugging Face Marian model, or "
            "decoder.yml of Marian's own"
        )

    config = _json(folder / "config.json")
    kind = config.get("model_type")
    if kind != "marian":
        raise ExportError(f"{folder / 'config.json'}: model_type is {kind!r}, not 'marian'")
    vocab = target_vocab = _vocab(folder / "vocab.json")
    generation = _json(folder / "generation_config.json", optional=True)
    tokenizer = _json(folder / "tokenizer_config.json", optional=True)
    if (folder / "target_vocab.json").exists():
        target_vocab = _vocab(folder / "target_vocab.json")

    if commit is not None:
        # In one form, and only of a model that can be imported.
        _fetch_weights(commit, folder)
    return Folder(
        path=folder,
        name=name,
        origin=origin,
        config=config,
        generation=generation,
        tokenizer=tokenizer,
        vocab=vocab,
        target_vocab=target_vocab,
        added=_added_tokens(folder, tokenizer),
        numbering=read_numbering(folder),
    )


def _fetch_weights(commit: hub.Address, folder: Path) -> None:
    for weights in (SAFETENSORS, PICKLED):
        if (folder / f"{weights}.index.json").exists():
            hub.fetch(commit, _shards(folder, weights))
            return
    for weights in (SAFETENSORS, PICKLED):
        if not (folder / SAFETENSORS).exists():
            hub.fetch(commit, [weights])


def _shards(folder: Path, weights: str) -> list[str]:
    """The files over which the weights are spread, by their index."""
    index = folder / f"{weights}.index.json"
    files = _json(index).get("weight_map")
    names = sorted(set(files.values())) if isinstance(files, dict) else []
    if not names or not all(_is_file_name(name) for name in names):
        raise ExportError(f"{index}: its weight_map must give a file of the folder for each array")
    return names


def _is_file_name(name: object) -> bool:
    """Whether it names a file of the folder itself: an index may have been made to read others."""
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def read_state(folder: Path) -> dict[str, np.ndarray]:
    """The arrays, in one file or several. Raises ExportError."""
    for weights in (SAFETENSORS, PICKLED):
        if (file := folder / weights).exists():
            return _arrays_of(file)
        if (folder / f"{weights}.index.json").exists():
            return _arrays_of_shards(folder, weights)
    raise ExportError(f"{folder}: has neither {SAFETENSORS} nor {PICKLED}; download one")


def _arrays_of_shards(folder: Path, weights: str) -> dict[str, np.ndarray]:
    state: dict[str, np.ndarray] = {}
    for name in _shards(folder, weights):
        file = folder / name
        if not file.exists():
            raise ExportError(f"{file}: is missing, but {weights}.index.json names it")
        state |= _arrays_of(file)
    return state


def _arrays_of(file: Path) -> dict[str, np.ndarray]:
    try:
        if file.suffix == ".safetensors":
            safetensors = package_of_extra("safetensors.numpy", f"{file}: is read by the package")
            arrays: dict[str, np.ndarray] = safetensors.load_file(str(file))
            return arrays
        torch = importlib.import_module("torch")
        # Arrays only: a pickle may otherwise run anything.
        loaded = torch.load(str(file), map_location="cpu", weights_only=True)
        return {name: tensor.float().numpy() for name, tensor in loaded.items()}
    except ExportError:
        raise
    except ImportError as error:
        raise ExportError(
            f"{file}: needs PyTorch: pip install torch, or download the model's {SAFETENSORS}"
        ) from error
    except Exception as error:  # their own error types, by version
        raise ExportError(f"{file}: cannot be read: {error!r}") from error


def _added_tokens(folder: Path, tokenizer: Mapping[str, Any]) -> dict[AddedToken, int]:
    """Tokens that the tokenizer's files add to the model's, with their ids; no marks."""
    path = folder / "added_tokens.json"  # of older programs: texts alone
    flags: dict[str, Mapping[str, Any]] = {}
    ids: dict[str, int] = {}
    for text, number in _json(path, optional=True).items():
        ids[text], flags[text] = number, {}
    listed = tokenizer.get("added_tokens_decoder") or {}
    try:
        for number, token in listed.items():
            text = token["content"]
            ids[text], flags[text] = int(number), token
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ExportError(
            f"{folder / 'tokenizer_config.json'}: its added_tokens_decoder is not a JSON object of "
            "ids and tokens"
        ) from error
    marks = {_mark(tokenizer, name, usual) for name, usual in _MARKS_OF_TOKENIZER}
    names = ("lstrip", "rstrip", "single_word")
    return {
        AddedToken(text, **{name: bool(flags[text].get(name)) for name in names}): number
        for text, number in ids.items()
        if text and text not in marks
    }


def _json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.exists():
        return {}
    with json_errors_as(ExportError, path, ""):
        content = load_json(path)
    if not isinstance(content, dict):
        raise ExportError(f"{path}: is not a JSON object")
    return content


def _vocab(path: Path) -> dict[str, int]:
    vocab = _json(path)
    ids = set(vocab.values())
    if len(ids) < len(vocab) or not all(isinstance(id, int) and id >= 0 for id in ids):
        raise ExportError(f"{path}: its ids must be different integers ≥ 0")
    return vocab


_MARKS_OF_TOKENIZER = (("pad", MARKS[0]), ("eos", MARKS[2]), ("unk", MARKS[3]))


def _mark(tokenizer: Mapping[str, Any], name: str, usual: str) -> str:
    token = tokenizer.get(f"{name}_token", usual)
    return str(token.get("content", usual)) if isinstance(token, dict) else str(token)


def start_of(folder: Folder) -> Any:
    """The id that the decoder begins with, or None for padding."""
    return decoder_start(folder.generation, folder.config)


def types_of(
    folder: Folder,
    vocab: Mapping[str, int],
    size: int,
    start: int | None,
    side: str,
    *,
    saved_again: bool,
) -> Types:
    """One side's types; `saved_again`: the folder may be this program's, saved by another.

    Raises ExportError for marks or ids that don't fit.
    """
    marks = _ids_of_marks(folder, vocab)
    last = max(vocab.values())
    if last >= size:
        raise ExportError(f"the vocabulary has ids up to {last}, but the model {size} types")
    start = marks["pad"] if start is None else start
    if not 0 <= start < size:
        raise ExportError(f"decoder_start_token_id = {start}, but the model has {size} types")

    names = {number: piece for piece, number in vocab.items()}
    if folder.numbering is not None:
        ids = list(folder.numbering[side])
        if not ids or not 0 <= min(ids) <= max(ids) < size:
            raise ExportError(f"{NUMBERING}: has ids that the model doesn't have")
    elif saved_again and _is_numbered_by_us(vocab):
        ids = [number for number in range(size) if number != marks["pad"]]
    else:
        ids = _marks_first(marks, start, names, size)
    return Types(_type_table(ids, names, folder.added, size), tuple(ids))


def _is_numbered_by_us(vocab: Mapping[str, int]) -> bool:
    """Whether this program wrote the vocabulary, even if another has saved it again."""
    return [vocab.get(mark) for mark in (UNUSED, *MARKS[1:])] == [PAD, BOS, EOS, UNK]


def _type_table(
    ids: Sequence[int], names: Mapping[int, str], added: Mapping[AddedToken, int], size: int
) -> TypeTable:
    """The pieces of these ids, and the added tokens among them."""
    names = dict(names)
    for token, number in added.items():
        names.setdefault(number, token.text)

    pieces = list(MARKS)
    for number in ids[len(MARKS) :]:
        # Rows beyond the vocabulary, and ordinary types with the text of a mark.
        piece = names.get(number, f"<unused {number}>")
        pieces.append(f"{piece} {number}" if piece in MARKS else piece)
    tokens = (token for token, number in added.items() if number < size and token.text in pieces)
    return TypeTable(tuple(pieces), tuple(tokens))


def _ids_of_marks(folder: Folder, vocab: Mapping[str, int]) -> dict[str, int]:
    """The ids of padding, end mark and unknown token by name. Raises ExportError."""
    marks = {}
    for name, usual in _MARKS_OF_TOKENIZER:
        piece = _mark(folder.tokenizer, name, usual)
        if piece not in vocab:
            raise ExportError(f"its vocabulary has no {name} token {piece!r}")
        marks[name] = vocab[piece]
    eos = folder.config.get("eos_token_id")
    if eos is not None and marks["eos"] not in (eos if isinstance(eos, list) else [eos]):
        raise ExportError(
            f"eos_token_id is {eos!r} in config.json, but {marks['eos']} in the vocabulary"
        )
    return marks


def _marks_first(
    marks: Mapping[str, int], start: int, names: Mapping[int, str], size: int
) -> list[int]:
    """The folder's ids in this program's order."""
    first = [marks["pad"], start, marks["eos"], marks["unk"]]
    only_marks = set(marks.values())
    if names.get(start, MARKS[1]) == MARKS[1]:
        only_marks.add(start)
    # If the decoder begins with an ordinary type, that stays a type, and the begin mark is a copy.
    return [*first, *(number for number in range(size) if number not in only_marks)]
