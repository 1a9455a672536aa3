"""Local paths, and `gs://` paths with the same methods.

A local path is a `pathlib.Path`, one in a bucket an `etils.epath.Path`; annotations say `Path` for
both. In a bucket an object appears whole or not at all, nothing can be appended to, and folders are
but parts of names: they cannot be made or renamed at one stroke. Whatever is built on `is_remote`
says what it does instead.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar

from flaxformer_mt.errors import install
from flaxformer_mt.files.atomic import replacing, write_whole
from flaxformer_mt.files.buckets import StorageError, bucket_path, local_path
from flaxformer_mt.files.reading import JsonError, parse_json, read_file
from flaxformer_mt.rundir import RunDirectoryError, WorkdirError

T = TypeVar("T")


def as_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a local file or folder, or the one in a bucket for `gs://...`.

    Raises WorkdirError for an empty path, for another kind of address, and for a bucket where the
    libraries that reach it are not installed.
    """
    if not os.fspath(path):
        raise WorkdirError("'' is not a path: write . for the current directory")
    # pathlib makes one slash of two, so that an address which went through it reads `gs:/`.
    if match := re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+):/(/?)", text := os.fspath(path)):
        if match[2] or isinstance(path, Path):
            return _in_bucket(match[1], text[match.end() :])
    # Absolute, since Orbax demands it and a later chdir must not move the run.
    try:
        return Path(os.path.abspath(local_path(path)))
    except StorageError as error:
        raise WorkdirError(str(error)) from error


def is_remote(path: os.PathLike[str]) -> bool:
    """Whether the path, one that `as_path` made, lies in an object store."""
    return not isinstance(path, Path)


def is_primary() -> bool:
    """Whether this process writes what all processes of a run share: it is alone, or the first."""
    jax = sys.modules.get("jax")  # one that never imported it is no member of several
    return jax is None or not jax.distributed.is_initialized() or jax.process_index() == 0


def exists(path: Path) -> bool:
    """`path.exists()`; RunDirectoryError if the store does not say."""
    return asking(path, "reached", path.exists) if is_remote(path) else path.exists()


@contextlib.contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """What fails in the block becomes a RunDirectoryError, "PATH: cannot be VERB: ...".

    For a path in a bucket that is whatever its clients raise: aiohttp's and google.auth's errors,
    too. Only FileNotFoundError passes: it is an answer.
    """
    try:
        yield
    except Exception as error:
        if is_remote(path):
            if isinstance(error, RunDirectoryError | FileNotFoundError):
                raise
            text = reason(error)
        elif isinstance(error, OSError):
            text = error.strerror or str(error)
        else:
            raise
        raise RunDirectoryError(f"{path}: cannot be {verb}: {text}") from error


def asking(path: Path, verb: str, action: Callable[[], T]) -> T:
    """What `action` on a bucket returns; its errors as `explained`."""
    with explained(path, verb):
        return action()


def persistently(action: Callable[[], T], *, waits: tuple[float, ...] = (1, 4, 16)) -> T:
    """What `action` returns, tried again after each of `waits` seconds.

    The clients repeat requests themselves; this is for what outlasts that.
    """
    for wait in waits:
        try:
            return action()
        except Exception:
            time.sleep(wait)
    return action()


def reason(error: BaseException) -> str:
    """An error of a store's client in one line."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, OSError) and text else f"{type(error).__name__}: {text}"


def _in_bucket(scheme: str, rest: str) -> Any:
    bucket, _, name = rest.strip("/").partition("/")
    if scheme != "gs":
        raise WorkdirError(
            f"{scheme}://{rest}: is neither a local path nor a bucket's, gs://BUCKET/FOLDER"
        )
    if not bucket or not name:
        raise WorkdirError(f"gs://{rest}: write a folder in a bucket: gs://BUCKET/FOLDER")
    missing = [name for name in ("gcsfs", "google.cloud.storage") if not _installed(name)]
    if missing:
        raise WorkdirError(
            f"gs://{rest}: {' and '.join(missing)} not installed; buckets need it: {install('gcs')}"
        )
    return bucket_path(f"gs://{bucket}/{name}")


def _installed(module: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):  # its parent package
        return importlib.util.find_spec(module) is not None
    return False


def write_json(path: Path, content: Any) -> None:
    """Writes `content`, whole or not at all.

    Raises RunDirectoryError if the content is not plain JSON or the file cannot be written.
    """
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RunDirectoryError(f"{path}: the content is not plain JSON: {error}") from error
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text as `write_bytes` does. Raises RunDirectoryError."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Writes `content` as `files.atomic.replacing` does; in a bucket it replaces the object.

    Raises RunDirectoryError if it cannot be written.
    """
    if not is_primary():
        return
    with explained(path, "written"):
        if is_remote(path):
            path.write_bytes(content)
        else:
            write_whole(path, content)


def remove_file(path: Path) -> None:
    """Removes the file, if it is there. Raises RunDirectoryError if that is refused."""
    if is_primary():
        with explained(path, "removed"):
            path.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """The content of `path`. Raises RunDirectoryError, and WorkdirError where it is not JSON."""
    try:
        with explained(path, "read"):
            data = read_file(path)
        return parse_json(data, path)
    except JsonError as error:
        raise WorkdirError(str(error)) from error
    except FileNotFoundError as error:
        raise RunDirectoryError(f"{path}: cannot be read: it is missing") from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """A local UTF-8 file of any size that appears at the end of the block, whole or not at all.

    Raises RunDirectoryError if it cannot be written.
    """
    if is_remote(path):
        raise RunDirectoryError(f"{path}: is in a bucket; write a local file and copy it there")
    with explained(path, "written"), replacing(path) as place:
        with open(place, "w", encoding="utf-8", newline="") as file:
            yield file


# What Orbax writes last into a checkpoint in a bucket: without it there is none.
COMMITTED = "commit_success.txt"


def remove(folder: Path) -> None:
    """Removes a checkpoint, the sign that it is complete first."""
    (folder / COMMITTED).unlink(missing_ok=True)
    folder.rmtree(missing_ok=True)  # type: ignore[attr-defined]


def replace(place: Path, source: Path) -> None:
    """Moves the checkpoint `source` to `place`, replacing what is there.

    Whenever it is interrupted, `place` is the one of before, none, or the new one; until that is
    complete, `source` is kept.
    """
    remove(place)
    for path in files_below(source):
        name = path.relative_to(source)
        if str(name) != COMMITTED:
            copy(path, place / name)
    copy(source / COMMITTED, place / COMMITTED)
    remove(source)


def files_below(folder: Path) -> Iterator[Path]:
    """Every file in a local folder or a bucket's, in order."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


def copy(source: Path, target: Path) -> None:
    """Copies a file, to or from a bucket or within one, in pieces; an object appears whole."""
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 23)
