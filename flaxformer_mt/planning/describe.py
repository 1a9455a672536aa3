"""Accelerators by the names that `--topology` takes."""

from flaxformer_mt.planning import PlanningError, gpus, names_a_tpu, tpus
from flaxformer_mt.planning.topology import Topology


def describe(name: str, slices: int = 1) -> Topology:
    """TPU slices, `VERSION:AxB[xC]`, or GPUs of one machine, `CARD[:NUMBER]`.

    Raises PlanningError.
    """
    if names_a_tpu(name):
        return tpus.describe_slices(name, slices)
    if slices != 1:
        raise PlanningError(f"'{name}': --slices is for TPUs; GPUs are those of one machine")
    return gpus.describe_gpus(name)
