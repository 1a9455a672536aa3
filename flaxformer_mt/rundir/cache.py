"""Folders of a run in a bucket that programs map into memory: `vocabulary/` and `data/`.

They are written once, so a copy under `cache_folder()`, named by its digest, serves every process
of a machine. A folder in a bucket is complete when its index is there, which is uploaded last;
`files.json`, just before it, has every file's size and sha256.
"""

import contextlib
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.files.reading import load_json
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import (
    asking,
    copy,
    exists,
    explained,
    files_below,
    is_primary,
    is_remote,
)

# Uploaded last: with its index, a folder is complete.
INDEX_FILES = {"vocabulary": "vocabulary.json", "data": "manifest.json"}
FILE_LIST = "files.json"  # every file's size and sha256


def cache_folder() -> Path:
    """`$FLAXFORMER_CACHE`, or `flaxformer_mt` in the user's cache folder; deletable when unused."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    chosen = os.environ.get("FLAXFORMER_CACHE") or Path(base, "flaxformer_mt")
    return Path(chosen).expanduser().absolute()


def local_copy(folder: Path) -> Path:
    """A run's `vocabulary` or `data` as a local folder: itself, or its copy in the cache.

    Of a copy made earlier only the sizes are compared: whoever opens it verifies it. Raises
    RunDirectoryError.
    """
    if not is_remote(folder):
        return folder
    if not _is_complete(folder):
        raise RunDirectoryError(
            f"{folder}: incomplete (no {INDEX_FILES[folder.name]}); run `prepare --workdir "
            f"{folder.parent}`"
        )
    files = asking(folder, "read", lambda: _described(folder))
    place = _place_of(files)
    with _usable():
        if not place.exists():
            _fetch_all(folder, place, files)
        for name, expected in files.items():
            file = place / name
            if not file.is_file() or file.stat().st_size != expected["size"]:
                raise RunDirectoryError(
                    f"{file}: damaged; delete {place}, and the next command fetches it again"
                )
    return place


@contextlib.contextmanager
def preparing(run: RunDirectory) -> Iterator[Path]:
    """The local folder in which to `prepare` a run, with those of its folders that exist.

    For a run in a bucket, new folders are uploaded at the end. Needs the lock, in the first
    process.
    """
    if not is_remote(run.path):
        yield run.path
        return
    absent = [name for name in INDEX_FILES if not _is_complete(run.path / name)]
    # One for each run: the next process clears the remains of a killed one.
    key = hashlib.sha256(str(run.path).encode()).hexdigest()
    work = cache_folder() / f"preparing-{key[:16]}"
    with _usable():
        shutil.rmtree(work, ignore_errors=True)
        (cache_folder() / "folders").mkdir(parents=True, exist_ok=True)
        work.mkdir()
    try:
        for name in INDEX_FILES.keys() - absent:
            (work / name).symlink_to(local_copy(run.path / name))
        yield work
        for name in absent:
            if (work / name / INDEX_FILES[name]).exists():
                _publish(work / name, run.path / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _publish(local: Path, remote: Path) -> None:
    """Uploads a new folder, and moves it into the cache."""
    if is_primary():
        upload_folder(local, remote)
    with _usable():
        place = _place_of(_listed(local))
        if not place.exists():
            local.rename(place)


def upload_folder(local: Path, remote: Path) -> None:
    """Uploads every file of a folder, its index last. Raises RunDirectoryError."""
    files = _listed(local)

    def upload(name: str) -> None:
        with explained(remote / name, "written"):
            copy(local / name, remote / name)

    index = INDEX_FILES[remote.name]
    _at_once(functools.partial(upload, name) for name in files if name != index)
    listed = json.dumps({"files": files}, indent=2).encode()
    with explained(remote / FILE_LIST, "written"):
        (remote / FILE_LIST).write_bytes(listed)
    upload(index)


def _at_once(actions: Iterable[Callable[[], Any]]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda action: action(), actions))


def _is_complete(folder: Path) -> bool:
    return exists(folder / INDEX_FILES[folder.name])


def _described(folder: Path) -> dict[str, Any]:
    """Each file's size and sha256, by `files.json`.

    For a folder that was copied by other means, only JSON files have a sha256.
    """
    if (folder / FILE_LIST).exists():
        return dict(load_json(folder / FILE_LIST)["files"])
    return _listed(folder, digested=".json")


def _listed(folder: Path, digested: str = "") -> dict[str, Any]:
    """Each file's size, and the sha256 of those whose names end in `digested`."""
    from etils import epath

    files = {}
    for path in files_below(folder):
        description: dict[str, Any] = {"size": epath.Path(path).stat().length}
        if path.name.endswith(digested):
            description["sha256"] = _sha256(path)
        files[path.relative_to(folder).as_posix()] = description
    return files


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_all(folder: Path, place: Path, files: Mapping[str, dict[str, Any]]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(place) as aside:
            _at_once(
                functools.partial(_fetch, folder / name, aside / name, expected)
                for name, expected in files.items()
            )
    except OSError:
        if not place.exists():  # otherwise another process was faster
            raise


def _fetch(remote: Path, local: Path, expected: dict[str, Any]) -> None:
    local.parent.mkdir(parents=True, exist_ok=True)
    try:
        asking(remote, "read", lambda: copy(remote, local))
    except FileNotFoundError as error:
        raise RunDirectoryError(f"{remote}: is missing; upload the folder again") from error
    for property_name, recorded in expected.items():
        actual = local.stat().st_size if property_name == "size" else _sha256(local)
        if actual != recorded:
            raise RunDirectoryError(
                f"{remote}: has {property_name} {actual}, but {FILE_LIST} says {recorded}; "
                "upload the folder again"
            )


def _place_of(files: dict[str, Any]) -> Path:
    """The folder in the cache for a copy of these files."""
    key = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "folders" / key


def _usable() -> contextlib.AbstractContextManager[None]:
    return explained(cache_folder(), "used as a cache (set FLAXFORMER_CACHE to another folder)")
