"""Accelerators that aren't here: TPU slices and GPUs of one machine."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from flaxformer_mt.parallel.chips import Chip


class TopologyName(NamedTuple):
    """What `--topology` and `--slices` take."""

    name: str
    slices: int = 1

    def __str__(self) -> str:
        return self.name if self.slices == 1 else f"{self.slices} slices of {self.name}"


@dataclasses.dataclass(frozen=True)
class Topology:
    """Slices of TPU chips, or the GPUs of one machine; `sides` are a slice's, in chips."""

    name: str
    slices: int
    sides: tuple[int, ...]
    chip: Chip
    devices: tuple[Any, ...]  # `jax.Device`s for the compiler only; a TPU's have `.coords`
    platform: Literal["tpu", "gpu"]
    compiler: str  # its name and version
    memory_bytes: int  # that a program may use on a device

    @property
    def chips(self) -> int:
        return len(self.devices) // self.chip.devices_per_chip

    def __str__(self) -> str:
        return str(TopologyName(self.name, self.slices))


def slice_numbers(devices: Sequence[Any]) -> tuple[int, ...]:
    """The slice of each device; 0 if there is only one."""
    return tuple(getattr(device, "slice_index", 0) for device in devices)


def usable_links(topology: Topology, devices: Sequence[Any]) -> int:
    """Links on which the worst-placed of these devices can send to others at a time: one for each
    side of the slice in which they differ, two for a side that is a ring."""
    if topology.platform == "gpu":
        return 1  # every GPU reaches every other by a switch or its host
    links = 0
    wraps = topology.chip.wraps_at
    for axis, side in enumerate(topology.sides):
        spanned = len({device.coords[axis] for device in devices})
        is_ring = wraps > 0 and side % wraps == 0 and min(topology.sides) > 1
        if spanned > 1:
            links += 2 if is_ring and spanned == side else 1
    return max(links, 1)
