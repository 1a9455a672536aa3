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
    """The last files. If there are too many of them, the oldest ones make room for the newest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: OrderedDict[str, ResultFile] = OrderedDict()

    def add(self, name: str, content: bytes) -> str:
        """Keeps a file; returns the token that it is fetched by, which can't be guessed."""
        token = secrets.token_urlsafe(32)
        self._files[token] = ResultFile(name, content, self._clock())
        self._make_room()
        return token

    def get(self, token: str) -> ResultFile | None:
        """The file, if it is still there."""
        self.forget_old()
        return self._files.get(token)

    def forget_old(self) -> None:
        """Forgets the files whose time is over; to be called once it is."""
        moment = self._clock()
        while self._files and moment - next(iter(self._files.values())).since >= SECONDS:
            self._files.popitem(last=False)

    def _make_room(self) -> None:
        self.forget_old()
        size = sum(len(file.content) for file in self._files.values())
        while len(self._files) > 1 and (len(self._files) > MOST_FILES or size > MOST_BYTES):
            _, oldest = self._files.popitem(last=False)
            size -= len(oldest.content)
