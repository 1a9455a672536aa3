"""Models in CTranslate2's form in the cache folder, for searches with `--runtime ctranslate2`.

A folder is named by all that decides what is in it, and is whole once it has the digest of its
files.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import flaxformer_mt
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, ctranslate2
from flaxformer_mt.interop.export import DisagreeError, export
from flaxformer_mt.interop.parity import Parity, sample_lines
from flaxformer_mt.rundir.cache import cache_folder
from flaxformer_mt.rundir.digests import flatten_paths
from flaxformer_mt.rundir.paths import explained

KEPT = 8  # folders of models
_DIGEST_FILE = "digest"
_REMOVED = "removed-"  # begins the name of a folder that is being removed


@contextlib.contextmanager
def exported(
    translator: Translator,
    name: str,
    quantization: str,
    data: Path | None,
    say: Callable[[str], None],
) -> Iterator[Path]:
    """The folder in the cache with this model for CTranslate2, made unless it is there. Inside, no
    other process removes it."""
    model = dataclasses.asdict(translator.model.config)
    del model["dtype"]  # of this program's products
    decides = {
        "parameters": _digest(translator.params),
        "model": model,
        "vocabulary": translator.vocabularies.digest,
        "programs": [f"flaxformer_mt {flaxformer_mt.__version__}", name],
        "exporter": hashlib.sha256(Path(ctranslate2.__file__).read_bytes()).hexdigest(),
    }
    key = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    models = cache_folder() / "ctranslate2"
    place = models / key[:32]
    with explained(models, "used as a cache (set FLAXFORMER_CACHE to another folder)"):
        models.mkdir(parents=True, exist_ok=True)
        with _alone(models):
            if place.exists() and not _is_whole(place):
                say(f"{place}: is damaged and is made again")
                _remove(place)
            if not place.exists():
                say(f"exporting the model for {name} and comparing both, once")
                parity = _export(translator, place, name, quantization, data)
                say(f"compared with {parity}")
            now = time.time_ns()  # the kernel's own clock for files takes steps of milliseconds
            os.utime(place, ns=(now, now))  # as the last one used
            _remove_oldest(models)
            yield place


def _export(
    translator: Translator, place: Path, name: str, quantization: str, data: Path | None
) -> Parity | None:
    """Raises ExportError."""
    try:
        parity = export(
            translator,
            place,
            form="ctranslate2",
            quantization=quantization,
            sample=sample_lines(translator.vocabularies, data, None),
        )
    except DisagreeError as error:
        raise ExportError(
            f"{name} gives other outputs than this program, so search with this one or in another "
            f"type (on x86 without VNNI in int7): {error.parity}"
        ) from error
    # Last: without it, a folder isn't whole.
    (place / _DIGEST_FILE).write_text(_digest_of_files(place))
    return parity


def _is_whole(place: Path) -> bool:
    """Whether the files that CTranslate2 reads are those that were written."""
    try:
        return (place / _DIGEST_FILE).read_text() == _digest_of_files(place)
    except OSError:
        return False


def _digest_of_files(place: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(place.iterdir()):
        if path.name != _DIGEST_FILE:
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _remove(place: Path) -> None:
    """Renames first: what is half removed has no model's name."""
    aside = place.with_name(f"{_REMOVED}{place.name}")
    shutil.rmtree(aside, ignore_errors=True)
    place.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _digest(params: Any) -> str:
    """Of the parameters' bytes: faster than `tree_digest`, which compiles a sum for each shape."""
    digest = hashlib.sha256()
    for path, leaf in sorted(flatten_paths(params).items()):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{path} {array.dtype} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


@contextlib.contextmanager
def _alone(models: Path) -> Iterator[None]:
    """Lets one process after another look into the folder and write to it."""
    descriptor = os.open(models, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Without locks on this file system, the second of two writers gets an error.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_oldest(models: Path) -> None:
    """Leaves the KEPT folders that were used last."""
    by_age = sorted(models.iterdir(), key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    of_models = [folder for folder in by_age if not folder.name.startswith(_REMOVED)]
    for folder in of_models[KEPT:]:
        _remove(folder)
