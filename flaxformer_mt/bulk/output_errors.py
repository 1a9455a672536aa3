"""Output that can't be written or continued, and why."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from flaxformer_mt.errors import UserError
from flaxformer_mt.rundir import RunDirectoryError, paths


class OutputError(UserError):
    """Output that can't be written or continued; the message names the file."""


@contextlib.contextmanager
def output_errors(
    path: Path | None, kept: Path | None = None, *, verb: str = "written"
) -> Iterator[None]:
    """Turns errors of the system or a store into OutputErrors. Without `path`, they pass."""
    hint = f"; finished output is in {kept}" if kept else ""
    store = path if path and paths.is_remote(path) else None
    try:
        with paths.explained(store, verb) if store else contextlib.nullcontext():
            yield
    except RunDirectoryError as error:
        raise OutputError(f"{error}{hint}") from error
    except OSError as error:
        if path is None:
            raise
        raise OutputError(f"{path}: cannot be {verb}: {error.strerror or error}{hint}") from error
