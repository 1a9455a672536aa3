"""Several processes as one run: identities, work of the first process, agreement, stopping.

Each process runs the same program on its own devices. The first does what only one may do, such as
preparing data, while the others wait at JAX's coordination service, for hours if need be. During
training they make decisions together by asking each other on the devices, without waiting.
"""

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flaxformer_mt.errors import FlaxformerError

T = TypeVar("T")

HEARTBEAT = 100  # seconds; JAX's own default
MEETING = 300  # seconds in which all must have come; JAX's own default
MISSING = "not all of the run's processes have come"
DIED = "JAX distributed service detected fatal errors"  # the words with which it ends a process
_LAST_WORDS = 0.98  # of that time: then this is said, since JAX will not
_QUIET = 30  # seconds of waiting for the others before this is said
_SIGNALS = 128  # above any signal's number
_PIECE = 2_000  # milliseconds of waiting between two looks at pending signals
_STATUS = "flaxformer_mt/exit_status"  # the first process's, once it has failed
_FAREWELL = 2  # seconds in which the others read it ...
_PATIENCE = 30  # ... having waited for it: it may have had to upload something first


class ProcessError(FlaxformerError):
    """A run of several processes that can't begin, or whose first process failed."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """How processes find each other, if no launcher tells JAX."""

    coordinator: str  # HOST:PORT of the first process
    count: int
    number: int  # of this process, from 0


def over_devices(*axes: str) -> NamedSharding:
    """By the axis "device" over all devices of all processes; without it, whole on each."""
    return NamedSharding(Mesh(np.asarray(jax.devices()), ("device",)), PartitionSpec(*axes))


class Processes:
    """A run's processes; this one is `number` of `count`. All make the same calls in order."""

    def __init__(self, number: int = 0, count: int = 1) -> None:
        self.number, self.count = number, count
        self._calls = 0
        self._ballots: dict[int, jax.Array] = {}

    @property
    def is_first(self) -> bool:
        """Whether this one writes and reports for all."""
        return self.number == 0

    def first(self, action: Callable[[], T]) -> T:
        """Runs `action` in the first process only and returns its result, plain JSON, in all.

        If it raises, so do the others: ProcessError.
        """
        if self.count == 1:
            return action()
        key = self._next_key()
        if not self.is_first:
            answer = json.loads(_read(key))
            if "failed" in answer:
                raise ProcessError(f"the first process has failed: {answer['failed']}")
            received: T = answer["value"]
            return received

        try:
            returned = action()
        except BaseException as error:
            reason = (str(error) or type(error).__name__).split("\n", 1)[0]
            with contextlib.suppress(Exception):  # the error at hand matters more
                _client().key_value_set(key, json.dumps({"failed": reason}))
            raise
        _client().key_value_set(key, json.dumps({"value": returned}))
        return returned

    def gather(self, values: Sequence[str]) -> list[list[str]]:
        """Every process's `values`, in order, on the first process; [] on the others."""
        if self.count == 1:
            return [list(values)]
        key = self._next_key()
        if not self.is_first:
            _client().key_value_set(f"{key}/{self.number}", json.dumps(list(values)))
            return []
        by_process = [list(values)]
        for number in range(1, self.count):
            by_process.append(json.loads(_read(f"{key}/{number}")))
            _client().key_value_delete(f"{key}/{number}")
        return by_process

    def anywhere(self, happened: bool) -> bool:
        """Whether it has happened in any process. Returns once all have called this."""
        answers = self.gather(["yes" if happened else ""])
        return self.first(lambda: ["yes"] in answers)

    def ask(self, value: int) -> Any:
        """The largest `value` of all processes at this call, for `jax.device_get`; doesn't wait."""
        if self.count == 1:
            return value
        if value not in self._ballots:
            self._ballots[value] = jax.make_array_from_callback(
                (jax.device_count(),), over_devices("device"), lambda _: np.full(1, value, np.int32)
            )
        return self._largest(self._ballots[value])

    @functools.cached_property
    def _largest(self) -> Callable[[jax.Array], jax.Array]:
        return jax.jit(jnp.max, out_shardings=over_devices())

    def _next_key(self) -> str:
        self._calls += 1
        return f"flaxformer_mt/{self._calls}"


ALONE = Processes()


class StopRequest:
    """While entered, the first SIGINT or SIGTERM sets `received`; a second one acts as usual.

    Preempted machines send SIGTERM some tens of seconds before they stop: time for one checkpoint.
    """

    def __init__(self, processes: Processes = ALONE) -> None:
        self.received: str | None = None
        self.after = "this step"  # still finished once a stop is requested
        self._processes = processes
        self._heard = 0
        self._handling = contextlib.ExitStack()

    def ask(self) -> Any:
        """Any process's request to stop, for `hear`: computed on the devices, not awaited."""
        request = 0
        if self.received is not None:
            request = self._processes.number * _SIGNALS + signal.Signals[self.received].value
        return self._processes.ask(request)

    def hear(self, answer: Any) -> None:
        self._heard = max(self._heard, int(answer))

    @property
    def reason(self) -> str | None:
        """Why to stop, None if there is no reason; of several processes, all give the same."""
        if self._processes.count == 1:
            return f"{self.received} received" if self.received else None
        if self._heard == 0:
            return None
        process, number = divmod(self._heard, _SIGNALS)
        return f"{signal.Signals(number).name} received by process {process}"

    def __enter__(self) -> "StopRequest":
        # Python sets handlers only in the main thread.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                former = signal.signal(number, self._handle)
                self._handling.callback(signal.signal, number, former)
        return self

    def __exit__(self, *_: object) -> None:
        self._handling.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        self._handling.close()
        # Not with print: the signal may have interrupted one.
        with contextlib.suppress(OSError):
            os.write(2, f"\n{self.received}: stopping after {self.after}\n".encode())


_failed: Processes | None = None  # set when an exception leaves `joined`


@contextlib.contextmanager
def joined(
    cluster: Cluster | None, *, heartbeat: int | None = None, meeting: int | None = None
) -> Iterator[Processes]:
    """The processes of this run, found by `cluster` or else by the launcher, within `meeting`
    seconds.

    JAX recognises TPU pod slices (also on GKE), Slurm, Open MPI and Kubernetes; otherwise this
    process is alone. Must come before any use of a device. If a process dies or leaves this block
    by an exception, JAX aborts the others within `heartbeat` seconds.

    Raises ProcessError if the others can't be met, and for several CPU devices in each of several
    processes.
    """
    try:
        processes = _join(cluster, heartbeat or HEARTBEAT, meeting or MEETING)
    except (RuntimeError, ValueError) as error:
        raise ProcessError(f"the run's processes could not connect: {error}") from error
    try:
        yield processes
    except BaseException as error:
        if processes.count > 1:
            global _failed
            _failed = processes
            # At a regular end JAX would wait for the others, which wait for this one.
            status = 130 if isinstance(error, KeyboardInterrupt) else 1
            if isinstance(error, SystemExit) and isinstance(error.code, int):
                status = error.code
            atexit.register(_leave, status)
            if not isinstance(error, (ProcessError, SystemExit)):
                print(
                    f"process {processes.number} of {processes.count} has failed: "
                    f"{type(error).__name__}",
                    file=sys.stderr,
                    flush=True,
                )
        raise


@contextlib.contextmanager
def _told_of_waiting(meeting: int) -> Iterator[None]:
    """While the block waits for the other processes, says so, and why it will end.

    JAX then ends the process from C++, with a stack of its own and without naming a cause.
    """

    def waiting() -> None:
        print("waiting for the run's other processes to start", file=sys.stderr, flush=True)

    def giving_up() -> None:
        print(
            f"{MISSING} within {meeting} s (--join-within): the same command must run on every "
            "host, and each must reach the first one; JAX ends this process now",
            file=sys.stderr,
            flush=True,
        )

    timers = [threading.Timer(_LAST_WORDS * meeting, giving_up)]
    if meeting > 2 * _QUIET:
        timers.append(threading.Timer(_QUIET, waiting))
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def settled_status(error: Exception, status: int) -> int:
    """The exit status after `error`: `status`, or the first process's if that failed first.

    A launcher may look at any process. The first ends last, since JAX then aborts the others.
    """
    if _failed is None:
        return status
    # If the coordinator is gone as well, there is nobody to report to or to ask.
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        if isinstance(error, ProcessError):
            status = int(_client().blocking_key_value_get(_STATUS, 1000 * _PATIENCE))
        elif _failed.is_first:
            _client().key_value_set(_STATUS, str(status))
    atexit.register(_leave, status)
    # Slurm ends all tasks as soon as one has ended; they keep the status that they were about to
    # exit with.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(status))
    if _failed.is_first:
        time.sleep(_FAREWELL)
    return status


def _join(cluster: Cluster | None, heartbeat: int, meeting: int) -> Processes:
    # JAX would take one task for a cluster and leave it a single one of the machine's GPUs.
    tasks = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
    if cluster is None and any(os.environ.get(name) == "1" for name in tasks):
        return ALONE
    # Its handler of SIGTERM would replace ours, and it ignores Ctrl-C.
    jax.config.update("jax_enable_preemption_service", False)
    with _told_of_waiting(meeting):
        is_connected = _connected(cluster, heartbeat, meeting)
    if not is_connected:
        return ALONE

    # CPUs may run programs that do not depend on each other side by side, in each process in
    # another order, and Gloo tells their messages apart by order. TPUs and GPUs keep it.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    # The devices of all are counted here: each waits until every other one has shown its own.
    processes = Processes(jax.process_index(), jax.process_count())
    if jax.default_backend() == "cpu" and jax.local_device_count() > 1:
        raise ProcessError(
            f"{jax.local_device_count()} CPU devices in each of {processes.count} processes can "
            "deadlock: remove xla_force_host_platform_device_count from XLA_FLAGS"
        )
    return processes


def _connected(cluster: Cluster | None, heartbeat: int, meeting: int) -> bool:
    """Connects to the other processes; False if there is no cluster, and this one is alone."""
    initialize = functools.partial(
        jax.distributed.initialize,
        initialization_timeout=meeting,
        heartbeat_timeout_seconds=heartbeat,
    )
    try:
        if cluster is None:
            initialize()
        else:
            initialize(
                cluster.coordinator,
                cluster.count,
                cluster.number,
                cluster_detection_method="deactivate",
                coordinator_bind_address=_loopback(cluster.coordinator),
            )
    except ValueError as error:
        if cluster is None and "coordinator_address should be defined" in str(error):
            return False
        raise
    except RuntimeError as error:
        is_late = "must be called before" in str(error) and cluster is None
        if is_late and not jax.distributed.is_initialized() and jax.process_count() == 1:
            return False
        raise
    return True


def _loopback(coordinator: str) -> str | None:
    """Where to listen if all processes are on this machine: JAX would on all interfaces.

    None leaves it to JAX, which also reads JAX_COORDINATOR_BIND_ADDRESS.
    """
    host, _, port = coordinator.rpartition(":")
    if "JAX_COORDINATOR_BIND_ADDRESS" in os.environ:
        return None
    if host == "localhost" or host.startswith("127."):
        return f"127.0.0.1:{port}"
    return coordinator if host == "[::1]" else None


def _leave(status: int) -> None:
    """For `atexit`, where the last one registered runs first: before JAX's, which would wait."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _client() -> Any:
    # JAX has no public door to its coordination service; Orbax enters by this one as well.
    from jax._src import distributed

    return distributed.global_state.client


def _read(key: str) -> str:
    """Waits for the text that a process writes there, until it comes or the process dies."""
    while True:
        try:
            return str(_client().blocking_key_value_get(key, _PIECE))
        except jax.errors.JaxRuntimeError as error:
            # In pieces, since Python attends to Ctrl-C only between them.
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
