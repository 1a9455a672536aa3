"""Accelerators you don't have, and compiling for them: program, memory, complaints."""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.errors import JaxRuntimeError
from jax.experimental import topologies
from jax.stages import Lowered

from flaxformer_mt.errors import install
from flaxformer_mt.parallel.chips import Chip, chip_of
from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.hlo import HloProgram, parse

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


@dataclasses.dataclass(frozen=True)
class Topology:
    """Slices of chips; `sides` are a slice's, in chips."""

    name: str
    slices: int
    sides: tuple[int, ...]
    chip: Chip
    devices: tuple[Any, ...]  # `jax.Device`s for the compiler only, with `.coords`

    @property
    def chips(self) -> int:
        return len(self.devices) // self.chip.devices_per_chip

    def __str__(self) -> str:
        return self.name if self.slices == 1 else f"{self.slices} slices of {self.name}"


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
    chip: str
    compiler: str
    compile_seconds: float
    hbm_bytes: int
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

    The last two are None and empty if it takes too much memory, which is a result, not an error.
    """
    start = time.perf_counter()
    refused = memory = hlo = None
    text = ""
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
        memory = _memory(compiled.memory_analysis())
    facts = Compiled(
        config=config,
        topology=str(topology),
        chip=topology.chip.name,
        compiler=f"libtpu {importlib.metadata.version('libtpu')}",
        compile_seconds=seconds,
        hbm_bytes=topology.chip.hbm_bytes,
        memory=memory,
        refused=refused,
        replications=tuple(complaints),
        # XLA's own rematerialisation names copies NAME.remat, NAME.remat2, ...
        recomputed=sum(".remat" in name for name in hlo.computations[hlo.entry]) if hlo else 0,
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


VERSIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "tpu7x")
_EXAMPLES = (
    "for example v5e:2x4 (8 chips), v5e:16x16 (256), v5p:2x2x1 (4), v4:2x2x2 (8), v6e:2x4 (8)"
)


def describe(name: str, slices: int = 1) -> Topology:
    """The topology `VERSION:AxB[xC]`, as libtpu knows it. Raises PlanningError."""
    match = re.fullmatch(r"([A-Za-z]\w*):(\d+(?:x\d+){0,2})", name)
    if not match:
        raise PlanningError(f"'{name}' is not a topology: write VERSION:SIDES, {_EXAMPLES}")
    version = match[1]
    sides = tuple(map(int, match[2].split("x")))
    if version not in VERSIONS:
        raise PlanningError(
            f"'{name}': only TPUs can be planned for: {', '.join(VERSIONS)}; {_EXAMPLES}"
        )
    if slices < 1:
        raise PlanningError(f"{slices} slices: must be at least 1")
    if importlib.util.find_spec("libtpu") is None:
        raise PlanningError(f"the TPU compiler is not installed here: {install('tpu')}")
    options: dict[str, Any] = {"num_slices": slices} if slices > 1 else {}
    if version == "v4":
        options["chip_config_name"] = "megacore"  # a chip's two cores are one device
    if math.prod(sides) == 1:
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        with captured():
            description = topologies.get_topology_desc(
                platform="tpu", topology_name=name, **options
            )
    except JaxRuntimeError as error:
        reason = str(error).splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
        raise PlanningError(
            f"the compiler does not know the topology '{name}': {reason}; {_EXAMPLES}"
        ) from error
    devices: tuple[Any, ...] = tuple(description.devices)
    kind = devices[0].device_kind
    chip = chip_of(kind)
    if chip is None:
        raise PlanningError(f"'{name}': flaxformer_mt/parallel/chips.py has no '{kind}'")
    return Topology(name, slices, sides, chip, devices)


def slice_numbers(devices: Sequence[Any]) -> tuple[int, ...]:
    """The slice of each device; 0 if there is only one."""
    return tuple(getattr(device, "slice_index", 0) for device in devices)


def usable_links(topology: Topology, devices: Sequence[Any]) -> int:
    """Links on which the worst-placed of these devices can send to others at a time: one for each
    side of the slice in which they differ, two for a side that is a ring."""
    links = 0
    wraps = topology.chip.wraps_at
    for axis, side in enumerate(topology.sides):
        spanned = len({device.coords[axis] for device in devices})
        is_ring = wraps > 0 and side % wraps == 0 and min(topology.sides) > 1
        if spanned > 1:
            links += 2 if is_ring and spanned == side else 1
    return max(links, 1)
