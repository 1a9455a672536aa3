"""A process that answers questions: each contestant of a benchmark runs in a process of its own.

Each line of its standard input is a question, each line of its standard output a JSON object. Its
standard error goes into a log; an error quotes the log's last line.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any


class ProcessFailed(RuntimeError):
    """A process that ended or fell silent before it had answered."""


class AskedProcess:
    """One such process, started at once; it ends with the `with` block.

    `environment` is added to this process's own. Raises ProcessFailed where the command cannot be
    started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as log_file:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log_file,
                    text=True,
                    cwd=folder,
                    env={**os.environ, **(environment or {})},
                )
            except OSError as error:
                raise ProcessFailed(f"{command[0]}: {error.strerror}") from error

    def ask(self, question: str, *, seconds: float) -> dict[str, Any]:
        """Its answer, for which it has so many seconds. Raises ProcessFailed."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: reading says why
            self._process.stdin.write(f"{question}\n")
            self._process.stdin.flush()
        return self.answer(seconds=seconds)

    def answer(self, *, seconds: float) -> dict[str, Any]:
        """The next line that it writes. Raises ProcessFailed."""
        assert self._process.stdout is not None
        with self._killed_after(seconds) as late:
            line = self._process.stdout.readline()
        if late.is_set():
            raise ProcessFailed(f"no answer within {seconds:,.0f} s")
        if not line.endswith("\n"):
            raise ProcessFailed(self._why(self._process.wait()))
        try:
            answer = json.loads(line)
        except json.JSONDecodeError as error:
            raise ProcessFailed(f"answered {line.strip()[:80]!r}, which is no JSON") from error
        if not isinstance(answer, dict):
            raise ProcessFailed(f"answered {line.strip()[:80]!r}, which is no JSON object")
        return answer

    def close(self) -> None:
        """Ends its input, and it with that; kills it if it does not end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> AskedProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._process.kill()
        self.close()

    @contextlib.contextmanager
    def _killed_after(self, seconds: float) -> Iterator[threading.Event]:
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            yield late
        finally:
            timer.cancel()

    def _why(self, status: int) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else f"ended with status {status} and said nothing"
