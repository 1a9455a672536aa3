"""Accelerators by the names that `--topology` takes."""

import math
from collections.abc import Sequence
from typing import Any

import jax

from flaxformer_mt.parallel.chips import chip_of
from flaxformer_mt.planning import TPU_VERSIONS, PlanningError, gpus, names_a_tpu, tpus
from flaxformer_mt.planning.topology import Topology, TopologyName, slice_numbers

_THREE_SIDES = ("v4", "v5p", "tpu7x")  # other versions' slices lie in a plane


def describe(name: str, slices: int = 1) -> Topology:
    """TPU slices, `VERSION:AxB[xC]`, or GPUs of one machine, `CARD[:NUMBER]`.

    Raises PlanningError.
    """
    if names_a_tpu(name):
        return tpus.describe_slices(name, slices)
    if slices != 1:
        raise PlanningError(f"'{name}': --slices is for TPUs; GPUs are those of one machine")
    return gpus.describe_gpus(name)


def name_of(devices: Sequence[jax.Device]) -> TopologyName | None:
    """The name of these devices; None if they can't be planned for, or aren't whole slices."""
    first: Any = devices[0]
    if first.platform == "tpu":
        return _name_of_slices(devices)
    if first.platform == "gpu" and len({device.process_index for device in devices}) == 1:
        cards = [card for card, gpu in gpus.GPUS.items() if gpu.kind == first.device_kind]
        return next((TopologyName(f"{card}:{len(devices)}") for card in cards), None)
    return None


def _name_of_slices(devices: Sequence[Any]) -> TopologyName | None:
    chip = chip_of(devices[0].device_kind)
    version = "" if chip is None else chip.name.removeprefix("TPU ")
    version = "tpu7x" if version == "7x" else version
    if chip is None or version not in TPU_VERSIONS:
        return None
    places = zip(*(device.coords for device in devices), strict=True)
    corners = [max(along_axis) + 1 for along_axis in places]
    sides = corners if version in _THREE_SIDES else corners[:2]
    slices = len({*slice_numbers(devices)})
    if slices * math.prod(corners) * chip.devices_per_chip != len(devices):
        return None
    return TopologyName(f"{version}:{'x'.join(map(str, sides))}", slices)
