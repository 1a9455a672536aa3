"""The base of this package's errors, and the exit status that an error gives a command.

Scripts that restart commands on preemptible machines (`launch/`) rely on the status.
"""

import difflib
import errno
import gzip
import os
import shlex
import sys
from collections.abc import Iterable
from typing import ClassVar

FAILED = 1  # the next attempt may succeed: a full disk, a network, a machine that fails
STOPPED = 75  # EX_TEMPFAIL: not finished; the same command resumes
FINAL = 2  # argparse's own for wrong usage; anything that running again won't fix


class FlaxformerError(Exception):
    """An error whose message tells the user what happened and what to do."""

    exit_status: ClassVar[int] = FAILED


class UserError(FlaxformerError, ValueError):
    """Settings or files that the user has to change."""

    exit_status = FINAL


class Stopped(BaseException):
    """A request to stop, such as a signal, which its text names. Whoever handles the signal raises
    it, and no `except Exception` on the way takes it for a failure."""


# Paths that cannot be used as asked; the first two are not valid paths at all.
_NO_PATHS = {errno.ENAMETOOLONG, errno.ELOOP}
_WRONG_PATHS = {*_NO_PATHS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL}
# Packages whose errors tell of damaged files, as those of Python's own decompressors do.
_READERS = {"backports", "safetensors"}


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest valid one, else all of them."""
    valid = list(valid)
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"valid names: {', '.join(valid)}"


def program() -> str:
    """The command that starts this program, as the user types it; `launch/local.sh` sets it."""
    return shlex.quote(os.environ.get("FLAXFORMER_PROGRAM", "flaxformer-mt"))


def install(extra: str) -> str:
    """How to install an extra, depending on how this program was started."""
    if "FLAXFORMER_PROGRAM" in os.environ:
        return f"write FLAXFORMER_EXTRAS={extra} before {program()}"
    return f"pip install 'flaxformer-mt[{extra}]'"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its type."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


def exit_status(error: BaseException) -> int:
    """FINAL if the same command would meet the same error again, as far as can be told.

    An error of ours raised from a failure of the machine or the network is only as final as that
    failure.
    """
    return FINAL if _is_final(error) else FAILED


def _is_final(error: BaseException) -> bool:
    if isinstance(error, FlaxformerError):
        if getattr(error.__cause__, "errno", None) in _NO_PATHS:
            return True
        final = error.exit_status == FINAL
        return final and (error.__cause__ is None or _is_final(error.__cause__))
    if isinstance(error, OSError):
        # gzip's and bz2's errors of damaged data have no number.
        unnumbered = type(error) in (OSError, gzip.BadGzipFile) and error.errno is None
        return unnumbered or error.errno in _WRONG_PATHS
    if isinstance(error, MemoryError):
        return False
    if type(error).__module__.split(".")[0] in sys.stdlib_module_names | _READERS:
        return True  # bad input: not a number, not JSON, no such package
    # JAX and object-store clients. XLA marks final errors so, and on TPUs also programs that exceed
    # their memory.
    text = str(error)
    return "INVALID_ARGUMENT" in text or "compile permanent error" in text
