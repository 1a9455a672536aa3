"""Compiling for accelerators you don't have: program, memory, complaints."""

import contextlib
import dataclasses
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from jax.errors import JaxRuntimeError
from jax.stages import Lowered

from flaxformer_mt.planning.hlo import HloProgram, parse
from flaxformer_mt.planning.topology import Topology

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_EXCEEDS = re.compile(
    r"(?:\(|Used )([\d.]+)([KMGT]?)(?:\) exceeds available HBM \(| of )([\d.]+)([KMGT]?)[) ]",
    re.IGNORECASE,
)
# The partitioner's words for copying an array to every device.
_REPLICATES = re.compile(
    r"involuntary full rematerialization|will be (?:fully )?replicated|full replication",
    re.IGNORECASE,
)
# Severity, date, time, thread, file.
_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ \S+\] ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of HBM on one device."""

    arguments: int
    outputs: int
    temporaries: int
    aliased: int  # outputs that reuse arguments (the donated state)
    code: int
    peak: int  # most that arguments, outputs and temporaries take at one time

    def needed(self, limit: int) -> int:
        """Most bytes that the program needs on a device of `limit` bytes.

        The sum, or, where that exceeds an accepted program's limit, the peak: pieces that are never
        needed together share memory (a big batch under `remat`: 19.8 GiB in all, 14.4 at once).
        """
        together = self.arguments + self.outputs - self.aliased + self.temporaries
        total = max(self.peak, together) + self.code
        return total if total <= limit else self.peak + self.code


@dataclasses.dataclass(frozen=True, kw_only=True)
class TooLarge:
    """The compiler's refusal, with `needed` and `available` bytes."""

    needed: int
    available: int
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """Facts about any program, compiled or refused. Bytes are one device's."""

    config: str
    topology: str
    platform: Literal["tpu", "gpu"]
    chip: str
    compiler: str
    compile_seconds: float
    hbm_bytes: int  # what a program may use
    memory: Memory | None
    refused: TooLarge | None
    replications: tuple[str, ...]  # complaints of the partitioner
    recomputed: int  # instructions that the compiler repeats to save memory

    @property
    def fits(self) -> bool:
        return self.refused is None

    @property
    def needed_bytes(self) -> int:
        """Memory that it takes or would take."""
        if self.memory is not None:
            return self.memory.needed(self.hbm_bytes)
        assert self.refused is not None
        return self.refused.needed

    @property
    def available_bytes(self) -> int:
        return self.refused.available if self.refused else self.hbm_bytes

    def to_json(self) -> dict[str, Any]:
        verdict = {"fits": self.fits, "needed_bytes": self.needed_bytes}
        return dataclasses.asdict(self) | verdict


def compile_quietly(
    config: str, topology: Topology, lower: Callable[[], Lowered]
) -> tuple[Compiled, HloProgram | None, str]:
    """Facts about the program, the program itself and its text.

    A program that takes too much memory is a result, not an error: it is None, and its text is
    empty if the compiler refused it.
    """
    start = time.perf_counter()
    refused = memory = hlo = None
    text = ""
    recomputed = 0
    with captured() as complaints:
        try:
            compiled = lower().compile()
        except JaxRuntimeError as error:
            refused = too_large(error)
            if refused is None:
                raise
    seconds = time.perf_counter() - start

    if refused is None:
        text = compiled.as_text() or ""
        hlo = parse(text)
        # XLA's own rematerialisation names copies NAME.remat, NAME.remat2, ...
        recomputed = sum(".remat" in name for name in hlo.computations[hlo.entry])
        memory = _memory(compiled.memory_analysis())
        if memory.needed(topology.memory_bytes) > topology.memory_bytes:
            # A GPU's compiler accepts any size.
            needed = memory.needed(topology.memory_bytes)
            refused = TooLarge(
                needed=needed, available=topology.memory_bytes, message="more memory than JAX takes"
            )
            hlo = None
    facts = Compiled(
        config=config,
        topology=str(topology),
        platform=topology.platform,
        chip=topology.chip.name,
        compiler=topology.compiler,
        compile_seconds=seconds,
        hbm_bytes=topology.memory_bytes,
        memory=memory,
        refused=refused,
        replications=tuple(complaints),
        recomputed=recomputed,
    )
    return facts, hlo, text


def _memory(analysis: Any) -> Memory:
    assert analysis is not None
    return Memory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
        peak=analysis.peak_memory_in_bytes,
    )


def too_large(error: Exception) -> TooLarge | None:
    """A failed compilation's message about memory, if it has one."""
    text = str(error)
    match = _EXCEEDS.search(text) if "RESOURCE_EXHAUSTED" in text else None
    if match is None:
        return None
    needed, needed_unit, available, available_unit = match.groups()
    return TooLarge(
        needed=_bytes(needed, needed_unit),
        available=_bytes(available, available_unit),
        message=text.splitlines()[0],
    )


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit.upper()])


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """Captures file descriptor 2, from C++ too; then lists the partitioner's complaints."""
    complaints: list[str] = []
    sys.stderr.flush()
    real_stderr = os.dup(2)
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 2)
            try:
                yield complaints
            finally:
                sys.stderr.flush()
                os.dup2(real_stderr, 2)
                file.seek(0)
                lines = file.read().decode(errors="replace").splitlines()
                complaints += [_PREFIX.sub("", line) for line in lines if _REPLICATES.search(line)]
    finally:
        os.close(real_stderr)
