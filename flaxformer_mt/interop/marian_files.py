"""The two files in which Marian keeps a model: NumPy's `.npz`, and its own binary `.bin`.

Both hold arrays by name, one of which, `special:model.yml`, is YAML text with a zero byte behind
it. A binary file has, little-endian: a version and the number of arrays; for each array the lengths
of its name, shape and data, and its type; all names; all shapes; zeros up to a multiple of 256
bytes; all data, each padded to that multiple. Source: Marian's binary.cpp and types.h.
"""

import itertools
import math
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from flaxformer_mt.files.reading import read_file
from flaxformer_mt.interop import ExportError

SETTINGS = "special:model.yml"
_VERSION = 1
_ALIGNMENT = 256
_FLOAT32, _INT8, _INTGEMM8 = 0x0404, 0x0101, 0x4101
_LARGEST = 127


class Content(NamedTuple):
    """A model's arrays, float32, and its settings."""

    arrays: dict[str, np.ndarray]
    settings: dict[str, Any]


def write_npz(path: Path, content: Content) -> None:
    text = np.frombuffer(_yaml(content.settings), np.int8)
    arrays: dict[str, Any] = {**content.arrays, SETTINGS: text}
    np.savez(path, **arrays)


def write_binary(path: Path, content: Content, *, int8: bool) -> None:
    """With `int8`, kernels and embeddings in 8 bits, as the engine multiplies them (intgemm8)."""
    items = [_item(name, array, int8=int8) for name, array in content.arrays.items()]
    text = _yaml(content.settings)
    items.append(_Item(SETTINGS.encode() + b"\0", _INT8, (len(text),), _padded(text)))

    headers = [struct.pack("<QQ", _VERSION, len(items))]
    headers += [
        struct.pack("<4Q", len(item.name), item.kind, len(item.shape), len(item.data))
        for item in items
    ]
    headers += [item.name for item in items]
    headers += [struct.pack(f"<{len(item.shape)}i", *item.shape) for item in items]
    offset = -(sum(map(len, headers)) + 8) % _ALIGNMENT
    headers.append(struct.pack("<Q", offset) + bytes(offset))
    with path.open("wb") as file:
        file.writelines([*headers, *(item.data for item in items)])


def is_kernel(name: str) -> bool:
    """Whether an array is multiplied, and may have 8 bits, transposed."""
    # The engine turns `decoder_ff_logit_out_Wt` to 8 bits itself, when it loads it.
    return "_W" in name and "Wemb" not in name and "_ln_" not in name and not name.endswith("_Wt")


class _Item(NamedTuple):
    name: bytes  # with a zero byte
    kind: int
    shape: tuple[int, ...]
    data: bytes


def _item(name: str, array: np.ndarray, *, int8: bool) -> _Item:
    kind, data = _FLOAT32, array.astype("<f4").tobytes()
    if int8 and (is_kernel(name) or name.endswith("Wemb")):
        # One factor for the whole array stands behind it.
        factor = np.float32(_LARGEST / max(float(np.abs(array).max()), 1e-30))
        rounded = np.rint(array * factor).astype(np.int8)
        # The shape stays that of the kernel before it is transposed.
        data = (rounded.T if is_kernel(name) else rounded).tobytes()
        kind, data = _INTGEMM8, data + factor.astype("<f4").tobytes()
    return _Item(name.encode() + b"\0", kind, array.shape, _padded(data))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


def _yaml(settings: Mapping[str, Any]) -> bytes:
    text: str = yaml.safe_dump(dict(settings))
    return text.encode() + b"\0"


def read_npz(path: Path) -> Content:
    """Raises ExportError."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ExportError(f"{path}: cannot be read as a Marian model: {error}") from error
    if SETTINGS not in arrays:
        raise ExportError(f"{path}: has no {SETTINGS}, which says what its arrays are")
    text = arrays.pop(SETTINGS).astype(np.int8).tobytes()
    # Left by training, and by older programs.
    extra = [name for name in arrays if name.startswith("special:") or name == "decoder_c_tt"]
    for name in extra:
        del arrays[name]
    return Content(arrays, _settings(path, text))


def read_binary(path: Path) -> Content:
    """Arrays of 8 bits are multiplied out again. Raises ExportError."""
    data = read_file(path)
    try:
        items = list(_items(data))
        arrays = {item.name.rstrip(b"\0").decode(): item for item in items}
        text = arrays.pop(SETTINGS).data
        content = {name: _array(name, item) for name, item in arrays.items()}
    except (struct.error, ValueError, KeyError) as error:
        raise ExportError(f"{path}: is not a binary Marian model, or is cut off") from error
    return Content(content, _settings(path, text))


def _items(data: bytes) -> Iterator[_Item]:
    version, count = struct.unpack_from("<QQ", data)
    if version != _VERSION:
        raise ValueError(version)
    position = 16 + 32 * count
    headers = [struct.unpack_from("<4Q", data, 16 + 32 * number) for number in range(count)]
    names = []
    for length, *_ in headers:
        names.append(data[position : position + length])
        position += length
    shapes = []
    for _, _, dimensions, _ in headers:
        shapes.append(struct.unpack_from(f"<{dimensions}i", data, position))
        position += 4 * dimensions
    (offset,) = struct.unpack_from("<Q", data, position)
    position += 8 + offset
    for (_, kind, _, length), name, shape in zip(headers, names, shapes, strict=True):
        if position + length > len(data):
            raise ValueError(length)
        yield _Item(name, kind, shape, data[position : position + length])
        position += length


def _array(name: str, item: _Item) -> np.ndarray:
    size = math.prod(item.shape)
    if item.kind == _FLOAT32:
        return np.frombuffer(item.data, "<f4", size).reshape(item.shape).astype(np.float32)
    if item.kind != _INTGEMM8:
        raise ValueError(item.kind)
    (factor,) = struct.unpack_from("<f", item.data, size)
    numbers = np.frombuffer(item.data, np.int8, size)
    shape = item.shape[::-1] if is_kernel(name) else item.shape
    array = numbers.reshape(shape).astype(np.float32) / np.float32(factor)
    return array.T if is_kernel(name) else array


def _settings(path: Path, text: bytes) -> dict[str, Any]:
    written = bytes(itertools.takewhile(bool, text))  # up to the zero byte
    try:
        settings = yaml.safe_load(written.decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ExportError(f"{path}: its {SETTINGS} is not YAML") from error
    if not isinstance(settings, dict):
        raise ExportError(f"{path}: its {SETTINGS} is not a mapping")
    return settings
