"""Translated files, which wait in memory until their clients fetch them."""

import dataclasses
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

SECONDS = 600.0  # that a file is kept
MOST_FILES = 64
MOST_BYTES = 64 << 20  # of all files


@dataclasses.dataclass(frozen=True)
class ResultFile:
    """A translated file, under its name."""

    name: str
    content: bytes
    since: float  # by the clock


class FileResults:
    """The last files. If there are too many of them, the oldest ones make room."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: OrderedDict[str, ResultFile] = OrderedDict()

    def add(self, name: str, content: bytes) -> str:
        """Keeps a file; returns the token that it is fetched by, which can't be guessed."""
        token = secrets.token_urlsafe(32)
        self._files[token] = ResultFile(name, content, self._clock())
        self._tidy()
        return token

    def get(self, token: str) -> ResultFile | None:
        """The file, if it is still there."""
        self._tidy()
        return self._files.get(token)

    def _tidy(self) -> None:
        while self._files:
            oldest = next(iter(self._files.values()))
            size = sum(len(file.content) for file in self._files.values())
            is_old = self._clock() - oldest.since > SECONDS
            if not is_old and len(self._files) <= MOST_FILES and size <= MOST_BYTES:
                return
            self._files.popitem(last=False)
