"""Compiles without running: the program, its memory, the compiler's complaints."""

import contextlib
import dataclasses
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import jax
from jax.stages import Lowered

from flaxformer_mt.planning.hlo import Program, parse

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_EXCEEDS = re.compile(
    r"(?:\(|Used )([\d.]+)([KMGT]?)(?:\) exceeds available HBM \(| of )([\d.]+)([KMGT]?)[) ]",
    re.IGNORECASE,
)
# The partitioner's words for giving up on a layout and copying everything everywhere.
_REPLICATES = re.compile(
    r"involuntary full rematerialization|will be (?:fully )?replicated|full replication",
    re.IGNORECASE,
)
# Severity, date, time, thread, file: of no use to the reader, and different each time.
_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ \S+\] ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of HBM on one device, as the compiler has laid them out.

    `aliased` is the part of the outputs that takes the place of arguments (the donated state).
    `peak` is the most that arguments, outputs and temporaries take at one time.
    """

    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    code: int
    peak: int

    def needed(self, limit: int) -> int:
        """What a device of `limit` bytes must have free, at most.

        The sum. Or, where that is more than there is: pieces that are never needed together share a
        place (a big batch under `remat` adds up to 19.8 GiB, and has 14.4 at one time), and since
        the compiler has accepted the program, it is the most at one time that counts.
        """
        together = self.arguments + self.outputs - self.aliased + self.temporaries
        whole = max(self.peak, together) + self.code
        return whole if whole <= limit else self.peak + self.code


@dataclasses.dataclass(frozen=True, kw_only=True)
class TooLarge:
    """The compiler gave up: `needed` and `available` bytes as it says them."""

    needed: int
    available: int
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compilation:
    """A program that the compiler has accepted, or its reason for not doing so."""

    seconds: float
    memory: Memory | None = None
    hlo: Program | None = None
    refused: TooLarge | None = None
    replications: tuple[str, ...]  # complaints of the partitioner
    recomputed: int = 0  # instructions that the compiler repeats to save memory
    text: str = dataclasses.field(default="", repr=False)


def compile_quietly(lower: Callable[[], Lowered]) -> Compilation:
    """Lowers and compiles. Too little memory is a result; any other failure is raised."""
    start = time.perf_counter()
    refused = None
    with captured() as complaints:
        try:
            compiled = lower().compile()
        except jax.errors.JaxRuntimeError as error:
            refused = too_large(error)
            if refused is None:
                raise
    seconds = time.perf_counter() - start
    if refused is not None:
        return Compilation(seconds=seconds, refused=refused, replications=tuple(complaints))
    text, memory = compiled.as_text() or "", compiled.memory_analysis()
    assert memory is not None
    hlo = parse(text)
    return Compilation(
        seconds=seconds,
        memory=Memory(
            arguments=memory.argument_size_in_bytes,
            outputs=memory.output_size_in_bytes,
            temporaries=memory.temp_size_in_bytes,
            aliased=memory.alias_size_in_bytes,
            code=memory.generated_code_size_in_bytes,
            peak=memory.peak_memory_in_bytes,
        ),
        hlo=hlo,
        replications=tuple(complaints),
        # XLA names the copies that its own rematerialisation makes NAME.remat, NAME.remat2, ...
        recomputed=sum(".remat" in item.name for item in hlo.computations[hlo.entry]),
        text=text,
    )


def too_large(error: Exception) -> TooLarge | None:
    """What a failed compilation says about memory; None for a failure of another kind."""
    text = str(error)
    found = _EXCEEDS.search(text) if "RESOURCE_EXHAUSTED" in text else None
    if found is None:
        return None
    needed, available = (round(float(found[at]) * _UNITS[found[at + 1].upper()]) for at in (1, 3))
    return TooLarge(needed=needed, available=available, message=text.splitlines()[0])


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """Takes what is written to file descriptor 2 within the block, by C++ code too.

    When the block ends, its list has the lines in which the partitioner says that it had to
    replicate what should be split.
    """
    complaints: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 2)
            try:
                yield complaints
            finally:
                sys.stderr.flush()
                os.dup2(kept, 2)
                file.seek(0)
                lines = file.read().decode(errors="replace").splitlines()
                complaints += [_PREFIX.sub("", line) for line in lines if _REPLICATES.search(line)]
    finally:
        os.close(kept)
