"""Local paths (`pathlib.Path`), and `gs://` paths (`etils.epath.Path`) with the same methods.

Annotations say `Path` for both. In a bucket objects appear whole and can't be appended to, and
folders are only parts of names: they can't be made or renamed at once.
"""

import contextlib
import errno
import importlib.util
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar

from flaxformer_mt.errors import FlaxformerError, install
from flaxformer_mt.files.atomic import replacing, write_whole
from flaxformer_mt.files.reading import (
    JsonError,
    StorageError,
    bucket_path,
    local_path,
    parse_json,
    read_file,
)
from flaxformer_mt.rundir import RunDirectoryError, WorkdirError

T = TypeVar("T")


def as_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a local file or folder, or the path of `gs://...`.

    Raises WorkdirError for an empty path, another kind of address, or missing client libraries.
    """
    if not os.fspath(path):
        raise WorkdirError("'' is not a path: write . for the current directory")
    # After pathlib an address reads `gs:/`.
    slashes = "//?" if isinstance(path, Path) else "//"
    text = os.fspath(path)
    scheme = re.match(rf"([a-zA-Z][a-zA-Z0-9+.-]+):{slashes}", text)
    if scheme is not None:
        return _in_store(scheme[1], text[scheme.end() :])
    # Absolute for Orbax, and so that a later chdir doesn't move the run.
    try:
        return Path(os.path.abspath(local_path(path)))
    except StorageError as error:
        raise WorkdirError(str(error)) from error


def _in_store(scheme: str, folder: str) -> Path:
    if scheme != "gs":
        raise WorkdirError(f"{scheme}://{folder}: is neither a local path nor gs://BUCKET/FOLDER")
    bucket, _, name = folder.strip("/").partition("/")
    if not bucket or not name:
        raise WorkdirError(f"gs://{folder}: write a folder in a bucket: gs://BUCKET/FOLDER")
    if importlib.util.find_spec("gcsfs") is None:  # it requires google.cloud.storage
        raise WorkdirError(f"gs://{folder}: gcsfs not installed: {install('gcs')}")
    return bucket_path(f"gs://{bucket}/{name}")


def is_remote(path: os.PathLike[str]) -> bool:
    """Whether the path, one that `as_path` made, lies in an object store."""
    return not isinstance(path, Path)


# Orbax merges the parts of a checkpoint by a glob of its whole path, which then finds no part, or
# another run's.
_PATTERNS = "*?["


def check_writable(path: Path) -> None:
    """Raises WorkdirError for a path below which checkpoints can be written, but not read."""
    check_readable(path)
    for character in _PATTERNS:
        if character in str(path):
            raise _unfit(path, f"checkpoints can't be stored below a path with {character!r}")


def check_readable(path: Path) -> None:
    """Raises WorkdirError for a path that Orbax and TensorStore take for another one."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        escaped = ascii(str(path))  # since it can't be printed
        raise _unfit(
            escaped, "checkpoints can't be stored below a path that isn't UTF-8"
        ) from error
    if "\\" in str(path):
        raise _unfit(path, r"checkpoints can't be stored below a path with '\'")
    # They replace `gs:/`, which os.path.normpath makes of an address, by `gs://`.
    if not is_remote(path) and "gs:/" in f"{path}/":
        raise _unfit(path, "checkpoints can't be stored below a folder whose name ends in 'gs:'")


def _unfit(path: object, why: str) -> WorkdirError:
    return WorkdirError(f"{path}: {why}; rename that folder, or choose another one")


def is_primary() -> bool:
    """Whether this process is alone or the first, which writes for all."""
    jax = sys.modules.get("jax")  # without it, the process is alone
    return jax is None or not jax.distributed.is_initialized() or jax.process_index() == 0


def exists(path: Path) -> bool:
    """`path.exists()`. Raises RunDirectoryError if the store doesn't answer."""
    return asking(path, "reached", path.exists) if is_remote(path) else path.exists()


@contextlib.contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """Turns OSErrors into RunDirectoryError, "PATH: cannot be VERB: ...".

    For a path in a bucket, whatever its clients raise except FileNotFoundError. This package's own
    errors say what they mean already.
    """
    try:
        yield
    except Exception as error:
        if is_remote(path):
            if isinstance(error, FlaxformerError | FileNotFoundError):
                raise
            text = reason(error)
        elif isinstance(error, OSError):
            text = error.strerror or str(error)
        else:
            raise
        raise RunDirectoryError(f"{path}: cannot be {verb}: {text}") from error


def asking(path: Path, verb: str, action: Callable[[], T]) -> T:
    """The result of `action`, whose errors are `explained`."""
    with explained(path, verb):
        return action()


def reason(error: BaseException) -> str:
    """An error of a store's client in one line."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, OSError) and text else f"{type(error).__name__}: {text}"


def write_json(path: Path, content: Any) -> None:
    """Writes plain JSON, whole or not at all. Raises RunDirectoryError."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text, whole or not at all. Raises RunDirectoryError."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes `content`, whole or not at all. Raises RunDirectoryError."""
    if not is_primary():
        return
    with explained(path, "written"):
        if is_remote(path):
            path.write_bytes(content)
        else:
            write_whole(path, content)


def check_output(name: str) -> None:
    """Checks, before long work, that the file `name` can be written afterwards.

    Raises WorkdirError for an empty name, RunDirectoryError for a folder and for a place that is
    missing or read-only. A bucket isn't asked.
    """
    path = as_path(name)
    if is_remote(path):
        return
    with explained(path, "written"):
        # Here a name that is too long shows itself, too.
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(path.stat().st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        tempfile.TemporaryFile(dir=path.parent).close()


def remove_file(path: Path) -> None:
    """Removes a file that may be missing. Raises RunDirectoryError."""
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
def document(path: Path, advice: str) -> Iterator[Any]:
    """The content of a JSON file, for a block whose errors mean that it is damaged."""
    try:
        content = read_json(path)
    except WorkdirError as error:
        raise WorkdirError(f"{error}; {advice}") from error
    try:
        yield content
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WorkdirError(
            f"{path}: is not valid ({type(error).__name__}: {error}); {advice}"
        ) from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """A local UTF-8 file that appears whole at the end of the block. Raises RunDirectoryError."""
    if is_remote(path):
        raise RunDirectoryError(f"{path}: is in a bucket; write a local file and copy it there")
    with explained(path, "written"), replacing(path) as place:
        with open(place, "w", encoding="utf-8", newline="") as file:
            yield file


# The file that Orbax writes last into a checkpoint in a bucket.
COMMITTED = "commit_success.txt"


def remove(folder: Path) -> None:
    """Removes a folder with its content; in a bucket, a checkpoint's sign of completion first."""
    if is_remote(folder):
        (folder / COMMITTED).unlink(missing_ok=True)
        folder.rmtree(missing_ok=True)  # type: ignore[attr-defined]
    else:
        shutil.rmtree(folder, ignore_errors=True)


def files_below(folder: Path) -> Iterator[Path]:
    """Every file in a local folder or a bucket's, in order."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


def copy(source: Path, target: Path) -> None:
    """Copies a file to, from or within a bucket in pieces; an object appears whole."""
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 23)
