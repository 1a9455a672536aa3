"""Accelerators you don't have: devices of a named TPU topology, only for the compiler."""

import dataclasses
import importlib.util
import math
import re
from collections.abc import Sequence
from typing import Any

from jax.errors import JaxRuntimeError
from jax.experimental import topologies

from flaxformer_mt.errors import UserError, install
from flaxformer_mt.parallel.chips import Chip, chip_of
from flaxformer_mt.planning.compile import captured

VERSIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "tpu7x")
_MEANT = {"v5litepod": "v5e", "v5lite": "v5e", "v6": "v6e", "v5": "v5e or v5p", "v7x": "tpu7x"}
_EXAMPLES = (
    "for example v5e:2x4 (8 chips), v5e:16x16 (256), v5p:2x2x1 (4), v4:2x2x2 (8), v6e:2x4 (8)"
)


class TopologyError(UserError):
    """A topology that does not exist or cannot be compiled for here."""


@dataclasses.dataclass(frozen=True)
class Topology:
    """One or several slices of chips. `sides` are a slice's, in chips."""

    name: str
    slices: int
    sides: tuple[int, ...]
    chip: Chip
    devices: tuple[Any, ...]  # `jax.Device`s for the compiler alone, with `.coords`

    @property
    def chips(self) -> int:
        return len(self.devices) // self.chip.devices_per_chip

    def __str__(self) -> str:
        return self.name if self.slices == 1 else f"{self.slices} slices of {self.name}"


def describe(name: str, slices: int = 1) -> Topology:
    """The topology `VERSION:AxB[xC]`, as libtpu knows it. Raises TopologyError."""
    named = re.fullmatch(r"([A-Za-z]\w*):(\d+(?:x\d+){0,2})", name)
    if not named:
        raise TopologyError(
            f"'{name}' is not a topology: write VERSION:SIDES in chips, {_EXAMPLES}"
        )
    version, sides = named[1], tuple(map(int, named[2].split("x")))
    _check_version(name, version)
    if slices < 1:
        raise TopologyError(f"{slices} slices: must be at least 1")
    if importlib.util.find_spec("libtpu") is None:
        raise TopologyError(
            f"the TPU compiler is not installed here: {install('tpu')} (it runs on any x86 Linux "
            "machine, without a TPU)"
        )
    options: dict[str, Any] = {"num_slices": slices} if slices > 1 else {}
    if version == "v4":
        options["chip_config_name"] = "megacore"  # a chip's two cores are one device
    if math.prod(sides) == 1:
        options["chips_per_host_bounds"] = (1, 1, 1)
    try:
        with captured():
            found = topologies.get_topology_desc(platform="tpu", topology_name=name, **options)
    except JaxRuntimeError as error:
        reason = str(error).splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
        raise TopologyError(
            f"the compiler does not know the topology '{name}': {reason}; {_EXAMPLES}; sizes that "
            f"exist: https://docs.cloud.google.com/tpu/docs/{version}"
        ) from error
    devices: tuple[Any, ...] = tuple(found.devices)
    kind = devices[0].device_kind
    chip = chip_of(kind)
    if chip is None:
        raise TopologyError(f"'{name}': flaxformer_mt/parallel/chips.py has no '{kind}'")
    return Topology(name, slices, sides, chip, devices)


def _check_version(name: str, version: str) -> None:
    if version in VERSIONS:
        return
    known = f"versions: {', '.join(VERSIONS)}"
    if re.match(r"(?i)(gpu|cuda|nvidia|[abhlv]\d{2,}\w*|t4)", version):
        raise TopologyError(
            f"'{name}': only TPUs can be planned without the hardware. XLA's GPU backend measures "
            "kernels on a GPU while compiling, and JAX's CUDA plugin needs a driver; on the GPU "
            "machine itself, `train --dry-run` shows compile time, memory and speed. "
            f"{known.capitalize()}"
        )
    meant = f" (did you mean {_MEANT[version]}?)" if version in _MEANT else ""
    raise TopologyError(f"'{name}': unknown TPU version '{version}'{meant}; {known}; {_EXAMPLES}")


def slice_numbers(devices: Sequence[Any]) -> tuple[int, ...]:
    """The slice of each device; 0 where there is one only."""
    return tuple(getattr(device, "slice_index", 0) for device in devices)


def usable_links(topology: Topology, devices: Sequence[Any]) -> int:
    """Links that the worst-placed of these devices can send on to others of them at a time.

    One for each side of the slice in which they differ, two where they span a side that is closed
    to a ring. At least 1.
    """
    links, wraps = 0, topology.chip.wraps_at
    for axis, side in enumerate(topology.sides):
        spanned = len({device.coords[axis] for device in devices})
        closed = wraps > 0 and side % wraps == 0 and min(topology.sides) > 1
        if spanned > 1:
            links += 2 if closed and spanned == side else 1
    return max(links, 1)
