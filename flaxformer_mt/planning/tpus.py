"""TPU slices, as libtpu knows them."""

import importlib.metadata
import importlib.util
import math
import re
from typing import Any

from jax.errors import JaxRuntimeError
from jax.experimental import topologies

from flaxformer_mt.errors import install
from flaxformer_mt.parallel.chips import chip_of
from flaxformer_mt.planning import TPU_VERSIONS, PlanningError
from flaxformer_mt.planning.compiler import captured
from flaxformer_mt.planning.topology import Topology

_EXAMPLES = (
    "for example v5e:2x4 (8 chips), v5e:16x16 (256), v5p:2x2x1 (4), v4:2x2x2 (8), v6e:2x4 (8)"
)


def describe_slices(name: str, slices: int) -> Topology:
    """The topology `VERSION:AxB[xC]`, as libtpu knows it. Raises PlanningError."""
    match = re.fullmatch(r"([A-Za-z]\w*):(\d+(?:x\d+){0,2})", name)
    if not match:
        raise PlanningError(f"'{name}' is not a topology: write VERSION:SIDES, {_EXAMPLES}")
    version = match[1]
    sides = tuple(map(int, match[2].split("x")))
    if version not in TPU_VERSIONS:
        raise PlanningError(
            f"'{name}': TPUs that can be planned for are {', '.join(TPU_VERSIONS)}; {_EXAMPLES}"
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
    return Topology(
        name,
        slices,
        sides,
        chip,
        devices,
        platform="tpu",
        compiler=f"libtpu {importlib.metadata.version('libtpu')}",
        memory_bytes=chip.hbm_bytes,
    )
