"""Several processes as one run: identities, work of the first process, agreement.

Each process runs the same program on devices of its own. What only one may do, such as preparing
data, the first does, and the others wait for it at JAX's coordination service: no device is
involved, and a wait may last for hours. What all must decide alike in the midst of training they
ask each other on the devices, without waiting.
"""

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flaxformer_mt.errors import FlaxformerError

T = TypeVar("T")

HEARTBEAT = 100  # seconds; JAX's own default
_PIECE = 2_000  # milliseconds of waiting between two looks at pending signals
_STATUS = "flaxformer_mt/exit_status"  # the first process's, once it has failed
_FAREWELL = 2  # seconds in which the others read it ...
_PATIENCE = 30  # ... having waited for it: it may have had to upload something first


class ProcessError(FlaxformerError):
    """A run of several processes that cannot begin, or whose first process has failed."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """How processes find each other; what a launcher would otherwise tell JAX."""

    coordinator: str  # HOST:PORT of the first process
    count: int
    number: int  # of this process, from 0


class Processes:
    """The processes of a run, as one of them sees them: this is `number` of `count`.

    All call the methods in the same order. For a run of one process they cost nothing and touch no
    device.
    """

    def __init__(self, number: int = 0, count: int = 1) -> None:
        self.number, self.count = number, count
        self._calls = 0
        self._ballots: dict[int, jax.Array] = {}  # nearly always the same one

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and speaks for all."""
        return self.number == 0

    def first(self, action: Callable[[], T]) -> T:
        """What `action` returns in the first process, which alone runs it: plain JSON.

        What it raises is raised there; the others, which had waited for it, raise ProcessError.
        """
        if self.count == 1:
            return action()
        key = self._next_key()
        if not self.is_first:
            answer = json.loads(_read(key))
            if "failed" in answer:
                raise ProcessError(f"the first process has failed: {answer['failed']}")
            value: T = answer["value"]
            return value
        try:
            value = action()
        except BaseException as error:
            reason = (str(error) or type(error).__name__).split("\n", 1)[0]
            with contextlib.suppress(Exception):  # the error at hand is the one to tell
                _write(key, json.dumps({"failed": reason}))
            raise
        _write(key, json.dumps({"value": value}))
        return value

    def gather(self, values: Sequence[str]) -> list[list[str]]:
        """Every process's `values`, in the processes' order: on the first one, [] on the others."""
        if self.count == 1:
            return [list(values)]
        key = self._next_key()
        if not self.is_first:
            _write(f"{key}/{self.number}", json.dumps(list(values)))
            return []
        found = [list(values)]
        for number in range(1, self.count):
            found.append(json.loads(_read(f"{key}/{number}")))
            _client().key_value_delete(f"{key}/{number}")
        return found

    def ask(self, value: int) -> Any:
        """The largest `value` that any process has at this call; `jax.device_get` gets it.

        It is dispatched to the devices behind what they have to do and not waited for.
        """
        if self.count == 1:
            return value
        split, largest = self._vote
        if value not in self._ballots:
            self._ballots[value] = jax.make_array_from_callback(
                (jax.device_count(),), split, lambda _: np.full(1, value, np.int32)
            )
        return largest(self._ballots[value])

    @functools.cached_property
    def _vote(self) -> tuple[NamedSharding, Callable[[jax.Array], jax.Array]]:
        """A number for each device, and a small program for the largest of them."""
        mesh = Mesh(np.asarray(jax.devices()), ("device",))
        everywhere = NamedSharding(mesh, PartitionSpec())
        return NamedSharding(mesh, PartitionSpec("device")), jax.jit(
            jnp.max, out_shardings=everywhere
        )

    def _next_key(self) -> str:
        self._calls += 1
        return f"flaxformer_mt/{self._calls}"


ALONE = Processes()
_failed: Processes | None = None  # those that `joined` was left by an exception in


@contextlib.contextmanager
def joined(cluster: Cluster | None, *, heartbeat: int | None = None) -> Iterator[Processes]:
    """The processes of this run, found by `cluster` or else by what started this process.

    JAX recognises TPU pod slices (also on GKE), Slurm, Open MPI and Kubernetes; where it recognises
    nothing, or a job of one task, this process is alone and nothing is started. Must come before
    any use of a device. A process that dies takes the others along within `heartbeat` seconds, and
    so does one that leaves this block by an exception: JAX aborts them.

    Raises ProcessError if the others cannot be met, and for several CPU devices in each of several
    processes.
    """
    try:
        processes = _join(cluster, heartbeat or HEARTBEAT)
    except (RuntimeError, ValueError) as error:
        raise ProcessError(f"the run's processes could not connect: {error}") from error
    try:
        yield processes
    except BaseException as error:
        if processes.count > 1:
            global _failed
            _failed = processes
            # At a regular end JAX waits for all to come to theirs: but they wait for this one.
            status = 130 if isinstance(error, KeyboardInterrupt) else 1
            if isinstance(error, SystemExit) and isinstance(error.code, int):
                status = error.code
            _leave_at_exit(status)
            if not isinstance(error, (ProcessError, SystemExit)):
                print(
                    f"process {processes.number} of {processes.count} has failed: "
                    f"{type(error).__name__}",
                    file=sys.stderr,
                    flush=True,
                )
        raise


def settled_status(error: Exception, status: int) -> int:
    """The exit status that a program ends with after `error`, for which `status` is right.

    Where processes fail because the first one has, its status is that of all: what would start them
    again may look at any. The first ends last then, since JAX aborts the others when it is gone.
    """
    if _failed is None:
        return status
    # Nobody is left to tell, or to hear it from, where the connection is lost as well.
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        if isinstance(error, ProcessError):
            status = int(_client().blocking_key_value_get(_STATUS, 1000 * _PATIENCE))
        elif _failed.is_first:
            _write(_STATUS, str(status))
    _leave_at_exit(status)
    # Slurm ends all tasks as soon as one has ended: with what they were about to end with.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(status))
    if _failed.is_first:
        time.sleep(_FAREWELL)
    return status


def _join(cluster: Cluster | None, heartbeat: int) -> Processes:
    if cluster is None and _one_task():
        return ALONE
    # Its handler of SIGTERM would stand in the way of ours, and knows nothing of Ctrl-C.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        if cluster is None:
            jax.distributed.initialize(heartbeat_timeout_seconds=heartbeat)
        else:
            jax.distributed.initialize(
                cluster.coordinator,
                cluster.count,
                cluster.number,
                cluster_detection_method="deactivate",
                heartbeat_timeout_seconds=heartbeat,
            )
    except ValueError as error:
        if cluster is None and "coordinator_address should be defined" in str(error):
            return ALONE
        raise
    except RuntimeError as error:
        # A command called by a program that has used JAX before, alone.
        before = "must be called before" in str(error) and cluster is None
        if before and not jax.distributed.is_initialized() and jax.process_count() == 1:
            return ALONE
        raise
    # CPUs may run programs that do not depend on each other side by side, in each process in
    # another order, and Gloo tells their messages apart by order alone. TPUs and GPUs keep it.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    # The devices of all are counted here: each waits until every other one has shown its own.
    processes = Processes(jax.process_index(), jax.process_count())
    if jax.default_backend() == "cpu" and jax.local_device_count() > 1:
        raise ProcessError(
            f"{jax.local_device_count()} CPU devices in each of {processes.count} processes: "
            "their collectives can deadlock (seen with jaxlib 0.10); remove "
            "xla_force_host_platform_device_count from XLA_FLAGS, for one device per process"
        )
    return processes


def _one_task() -> bool:
    """Whether Slurm or Open MPI has started this process alone.

    JAX would take that for a cluster of one and leave it a single one of the machine's GPUs.
    """
    return any(os.environ.get(name) == "1" for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"))


def _leave_at_exit(status: int) -> None:
    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    # The last one registered is the first to run: before JAX's, which would wait.
    atexit.register(leave)


def _client() -> Any:
    # JAX has no public door to its coordination service; Orbax enters by this one as well.
    from jax._src import distributed

    return distributed.global_state.client


def _write(key: str, text: str) -> None:
    _client().key_value_set(key, text)


def _read(key: str) -> str:
    """What a process writes there, however long it takes; a dead process ends the waiting."""
    while True:
        try:
            text: str = _client().blocking_key_value_get(key, _PIECE)
            return text
        except jax.errors.JaxRuntimeError as error:
            # In pieces, since Python attends to Ctrl-C only between them.
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
