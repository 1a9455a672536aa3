"""Orbax without its noise: what concerns a user reaches them as one exception, once.

A failed operation of Orbax logs the same failure several times and abandons dozens of reads and
coroutines, each of which then complains on the terminal that its event loop is closed.
"""

from __future__ import annotations

import gc
import inspect
import logging
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any


def hush() -> None:
    """Silences, for this process, Orbax's log and the complaints of what it abandoned."""
    logger = logging.getLogger("absl")
    if _not_of_orbax not in logger.filters:
        logger.addFilter(_not_of_orbax)
    # What Orbax (and gcsfs) abandon has come as an exception before.
    abandoned = logging.getLogger("asyncio")
    if _not_abandoned not in abandoned.filters:
        abandoned.addFilter(_not_abandoned)
    if not isinstance(sys.unraisablehook, _SpareAbandoned):
        sys.unraisablehook = _SpareAbandoned(sys.unraisablehook)


def bury(error: BaseException) -> None:
    """Ends the coroutines that hang on the frames of a failed operation of Orbax.

    Otherwise they die whenever memory is next collected, with a warning each. The error keeps
    its traceback and its causes.
    """
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        gc.collect()


def first_line(error: BaseException) -> str:
    """The error in one line; TensorStore's go on with pages of specification."""
    text = str(error).strip().split("\n", 1)[0]
    # The reason, such as a full disk, stands behind all the names of files.
    reason = re.search(r"OS error \d+: [^\]\n]*", str(error))
    shown = text if reason is None or reason[0] in text[:300] else f"{reason[0]}: {text}"
    return f"{type(error).__name__}: {shown[:300]}" if text else type(error).__name__


class _SpareAbandoned:
    """An unraisable hook that passes on all but what belongs to Orbax's closed event loops."""

    def __init__(self, complain: Callable[[Any], Any]) -> None:
        self._complain = complain

    def __call__(self, unraisable: Any) -> None:
        source = unraisable.object
        if inspect.iscoroutine(source) and "/orbax/checkpoint/" in source.cr_code.co_filename:
            return
        # TensorStore's thread hands a result to the loop that the failed read had.
        if source is None and str(unraisable.exc_value) == "Event loop is closed":
            return
        self._complain(unraisable)


def _not_abandoned(record: logging.LogRecord) -> bool:
    return "exception was never retrieved" not in record.getMessage()


def _not_of_orbax(record: logging.LogRecord) -> bool:
    return "/orbax/checkpoint/" not in record.pathname.replace("\\", "/")
