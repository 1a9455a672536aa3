"""Reading a checkpoint, and whose fault it is where that fails: the checkpoint's or the machine's.

What is damaged may be set aside and another used in its place. What could only not be read at the
moment (a disk that errs once, a network's stale handle, too many open files) is tried again, and
is then an error that changes nothing: it must cost no checkpoint.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from flaxformer_mt.rundir.errors import CheckpointError, DamagedError, UnreadError
from flaxformer_mt.rundir.orbax_quiet import bury, first_line
from flaxformer_mt.rundir.paths import is_remote
from flaxformer_mt.rundir.remote_folders import COMMITTED

T = TypeVar("T")

# Seconds before another attempt. A bucket's clients have made theirs.
_WAITS = (0.2, 1.0, 5.0)
# What an operating system says of files that are missing, or are something else.
_DAMAGE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.ENOMEM})
_REFUSED_WORDS = ("RESOURCE_EXHAUSTED", "PERMISSION_DENIED")


def reading(folder: Path, name: str, read: Callable[[], T]) -> T:
    """What `read` gives of the item `name` of the checkpoint in `folder`.

    Raises DamagedError where files are missing or are not what they should be, UnreadError where
    the machine or the store fails several times, and CheckpointError at once for want of memory or
    of rights.
    """
    for wait in () if is_remote(folder) else _WAITS:
        try:
            return _once(folder, name, read)
        except UnreadError:
            time.sleep(wait)
    return _once(folder, name, read)


def _once(folder: Path, name: str, read: Callable[[], T]) -> T:
    try:
        if not is_remote(folder):
            # Orbax asks whether there is something, and takes any failure for a no.
            os.stat(folder / name)
        return read()
    except Exception as error:  # Orbax and TensorStore raise anything, from KeyError on.
        bury(error)
        codes = set(_os_errors(error))
        said = f"{folder}: {name} cannot be read: "
        if codes & _REFUSED or any(_is_refusal(each) for each in _chain(error)):
            raise CheckpointError(f"{said}{_reason(error, codes & _REFUSED)}") from error
        if not _answers(folder):
            raise UnreadError(f"{said}{first_line(error)}") from error
        if codes - _DAMAGE and not is_remote(folder):
            raise UnreadError(
                f"{said}{_reason(error, codes - _DAMAGE)}, several times; run the command again, "
                "and should that stay so, move that folder elsewhere"
            ) from error
        raise DamagedError(f"{said}{first_line(error)}") from error


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, (MemoryError, PermissionError)) or any(
        word in str(error) for word in _REFUSED_WORDS
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came of: Orbax wraps TensorStore's, which alone give the reason."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _os_errors(error: BaseException) -> Iterator[int]:
    """The operating system's numbers for what went wrong, Python's and TensorStore's."""
    for each in _chain(error):
        if isinstance(each, FileNotFoundError):
            yield errno.ENOENT
        elif isinstance(each, OSError):
            yield each.errno or errno.EIO
        for number in re.findall(r"os_error_code='(\d+)'|OS error (\d+)", str(each)):
            yield int(number[0] or number[1])


def _reason(error: BaseException, codes: set[int]) -> str:
    return ", ".join(os.strerror(code) for code in sorted(codes)) or first_line(error)


def _answers(folder: Path) -> bool:
    """Whether the store that `folder` lies in can be read at all: what then fails is damage."""
    if not is_remote(folder):
        return True
    try:
        (folder / COMMITTED).read_bytes()
    except FileNotFoundError:
        return True
    except Exception:
        return False
    return True
