"""What a compiler written in C++ says on standard error, kept instead of shown."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import tempfile
from collections.abc import Iterator

# The partitioner's words for giving up on a layout and copying everything everywhere.
_REPLICATES = re.compile(
    r"involuntary full rematerialization|will be (?:fully )?replicated|full replication",
    re.IGNORECASE,
)


# Severity, date, time, thread, file: of no use to the reader, and different each time.
_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ \S+\] ")


@dataclasses.dataclass
class CompilerLog:
    """Filled when the block ends."""

    text: str = ""

    @property
    def replications(self) -> tuple[str, ...]:
        """Lines in which the partitioner says that it had to replicate what should be split."""
        lines = [line for line in self.text.splitlines() if _REPLICATES.search(line)]
        return tuple(_PREFIX.sub("", line) for line in lines)


@contextlib.contextmanager
def captured() -> Iterator[CompilerLog]:
    """Takes what is written to file descriptor 2 within the block, by C++ code too."""
    log = CompilerLog()
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 2)
            try:
                yield log
            finally:
                sys.stderr.flush()
                os.dup2(kept, 2)
                file.seek(0)
                log.text = file.read().decode(errors="replace")
    finally:
        os.close(kept)
