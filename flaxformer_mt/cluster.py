"""Work spread over the machines of a Ray cluster, its results in order.

Only the caller reads items and gets results, so the machines need no files in common but those that
`begin` reads. A worker is a Ray actor, a process with chips of its own; it keeps what `begin` has
loaded. The items of a lost worker or machine go to the others.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

from flaxformer_mt.errors import FlaxformerError, UserError, first_line, install

QUEUED = 2  # items at a worker: the next one is there when it has done one
AHEAD = 16  # items for each worker whose results may wait for an earlier one's
DEATHS = 4  # workers that an item, or loading on one machine, may cost
_LOOK = 2.0  # seconds between two looks for further machines, while nothing ends

Begin = Callable[[], tuple[dict[str, Any], Callable[[Any], Any]]]
"""Loads what a worker needs; returns facts about that, which must be alike on all machines, and the
function that does an item's work. It can be pickled."""


class ClusterError(FlaxformerError):
    """A cluster that cannot be reached or used, or whose workers die on every machine."""


class NoRay(UserError):
    """The package is missing."""


@dataclasses.dataclass(frozen=True)
class Local:
    """Work is done in this process."""


@dataclasses.dataclass(frozen=True)
class Ray:
    """Work is shared among the machines of a Ray cluster (extra `ray`).

    The default `address` (HOST:PORT) is RAY_ADDRESS's, or this machine's; without one, a cluster
    starts here. `chips` is the number of TPU or GPU chips (or CPUs) per worker; by default a worker
    has all of its machine. Raises ValueError for fewer than one.
    """

    address: str | None = None
    chips: int | None = None

    def __post_init__(self) -> None:
        if self.chips is not None and self.chips < 1:
            raise ValueError(f"chips = {self.chips} must be at least 1")


Engine = Local | Ray
EngineName = Literal["local", "ray"]


def engine_of(engine: Engine | EngineName) -> Engine:
    """The engine that a name stands for. Raises UserError for another name."""
    if isinstance(engine, Local | Ray):
        return engine
    if engine == "local":
        return Local()
    if engine == "ray":
        return Ray()
    raise UserError(f"engine = {engine!r}: must be 'local', 'ray' or Ray(address=...)")


class _Worker:
    """In an actor's process."""

    def begin(self, begin: Begin) -> dict[str, Any]:
        facts, self._work = begin()
        return facts

    def work(self, item: Any) -> Any:
        return self._work(item)


class _Job(Future[Any]):
    """An item, and its result once there is one."""

    deaths = 0  # of workers that had it

    def __init__(self, item: Any) -> None:
        super().__init__()
        self.item = item


@dataclasses.dataclass(eq=False)
class _Seat:
    """A worker, and where it runs: `place` is a node and a number there."""

    place: tuple[str, int]
    address: str
    actor: Any
    begun: bool = False  # `begin` has returned
    jobs: collections.deque[_Job] = dataclasses.field(default_factory=collections.deque)


@contextlib.contextmanager
def workers(
    begin: Begin,
    *,
    address: str | None,
    say: Callable[[str], None],
    chips: int | None = None,
    kinds: Sequence[str] = ("TPU", "GPU", "CPU"),
) -> Iterator[Workers]:
    """The workers of a cluster, at least one of which has begun.

    The default `address` is RAY_ADDRESS's, or this machine's; without one, a cluster starts here,
    on the loopback interface. Machines with TPUs have a worker for each `chips` of them, or for
    all; else those with GPUs, else with CPUs, among `kinds`. Meanwhile `sys.stdout` is standard
    error. Raises NoRay, ClusterError, and what `begin` raises.
    """
    try:
        import ray
    except ImportError as error:
        raise NoRay(f"--engine ray: ray is not installed: {install('ray')}") from error

    handler = signal.getsignal(signal.SIGTERM)
    # Ray prints what workers and machines died of to standard output, where results go.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            _check_answer(address or os.environ.get("RAY_ADDRESS", ""))
            _connect(ray, address)
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterError(f"the Ray cluster cannot be reached: {first_line(error)}") from error
        try:
            signal.signal(signal.SIGTERM, handler)  # Ray has put its own in its place
            crew = Workers(ray, say, chips, kinds)
            crew.start(begin)
            yield crew
        except ray.exceptions.RayError as error:
            raise ClusterError(f"the Ray cluster failed: {first_line(error)}") from error
        finally:
            ray.shutdown()  # which ends the workers


def _check_answer(address: str) -> None:
    """Raises OSError if nothing answers at HOST:PORT. Ray itself tries for a quarter of an hour."""
    match = re.fullmatch(r"([\w.-]+):(\d+)", address)
    if match is not None:
        host, port = match.groups()
        socket.create_connection((host, int(port)), timeout=30).close()


def _connect(ray: Any, address: str | None) -> None:
    """Joins the cluster, or starts one on this machine that only this machine can reach.

    Ray's own listens on all interfaces, and runs what it is sent. Raises what `ray.init` raises.
    """
    from ray._private import ray_constants, services

    # Workers' logs stay in Ray's folder: their standard error is no part of this command's.
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if services.canonicalize_bootstrap_address(address) is not None:
        ray.init(address, **quiet)
        return

    # So Ray takes the loopback address, as it does on macOS and Windows. `_node_ip_address` can't
    # say so: Ray puts the machine's own in its place. A test watches these private names.
    default = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init("local", include_dashboard=False, **quiet)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = default


class Workers:
    """One worker for each share of a cluster's devices, while machines come and go.

    `start` loads something in every worker; `map` then does items' work, in order. Both raise
    ClusterError, and what is raised in the workers. `say` gets a sentence about each worker that is
    found or lost. `told` has the facts that `begin` returned, alike on all machines.
    """

    def __init__(
        self, ray: Any, say: Callable[[str], None], chips: int | None, kinds: Sequence[str]
    ) -> None:
        self._ray = ray
        self._say = say
        self._chips = chips
        self._kinds = kinds
        self._class = ray.remote(_Worker)
        self._seats: dict[tuple[str, int], _Seat] = {}
        self._pending: dict[Any, tuple[_Seat, _Job | None]] = {}  # by call
        self._waiting: collections.deque[_Job] = collections.deque()
        self._deaths: collections.Counter[tuple[str, int]] = collections.Counter()  # in `begin`
        self._looked = 0.0  # when the machines were last counted
        self._alone = False  # there was no machine then
        self.told: dict[str, Any] = {}  # the first worker's facts

    def start(self, begin: Begin) -> None:
        """Loads `begin` in every worker, also in later ones, in place of an earlier `begin`."""
        self._begin = self._ray.put(begin)
        self.told = {}
        for seat in self._seats.values():
            seat.begun = False
            self._load(seat)
        self._recruit()
        while not any(seat.begun for seat in self._seats.values()):
            self._wait()

    def map(self, items: Iterable[Any], ahead: int = AHEAD) -> Iterator[tuple[Any, Any]]:
        """Each item and its result, in order. Raises the error of an item's work.

        At most `ahead` items for each worker are read before the first of them is yielded.
        """
        items = iter(items)
        jobs = collections.deque[_Job]()
        while True:
            room = max(0, ahead * max(1, len(self._seats)) - len(jobs))
            new = [_Job(item) for item in itertools.islice(items, room)]
            jobs.extend(new)
            self._waiting.extend(new)
            if not jobs:
                return

            self._assign()
            while not jobs[0].done():
                self._wait()
                self._assign()
            while jobs and jobs[0].done():
                job = jobs.popleft()
                yield job.item, job.result()

    def _assign(self) -> None:
        """Hands waiting jobs to workers that have room."""
        for length in range(QUEUED):  # all have one before any has two
            for seat in self._seats.values():
                if self._waiting and seat.begun and len(seat.jobs) <= length:
                    # A job that a worker died with is done alone: it may be innocent of that.
                    if seat.jobs and (seat.jobs[0].deaths or self._waiting[0].deaths):
                        continue
                    job = self._waiting.popleft()
                    seat.jobs.append(job)
                    self._pending[seat.actor.work.remote(job.item)] = seat, job

    def _wait(self) -> None:
        """Settles calls that have ended by now, or looks for further machines after a while."""
        if self._pending:
            ended, _ = self._ray.wait(list(self._pending), timeout=_LOOK)
            for call in ended:
                if call in self._pending:  # not of a worker that was lost a moment ago
                    self._settle(call, *self._pending.pop(call))
        else:
            time.sleep(_LOOK)
        if time.monotonic() - self._looked >= _LOOK:
            self._recruit()

    def _settle(self, call: Any, seat: _Seat, job: _Job | None) -> None:
        """Takes the result of an ended call: of a job, or of `begin`, whose error is raised."""
        try:
            outcome = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            cause.__cause__ = None if isinstance(cause, FlaxformerError) else error  # its trace
            if job is None:
                raise cause  # noqa: B904
            job.set_exception(cause)
            seat.jobs.remove(job)
        except self._ray.exceptions.RayError as error:
            self._lose(seat, error)
        else:
            if job is None:
                self._join(seat, outcome)
            else:
                job.set_result(outcome)
                seat.jobs.remove(job)

    def _load(self, seat: _Seat) -> None:
        self._pending[seat.actor.begin.remote(self._begin)] = seat, None

    def _join(self, seat: _Seat, facts: dict[str, Any]) -> None:
        """Takes a worker that has begun. Raises ClusterError if its facts differ from others'."""
        self.told = self.told or facts
        for name in {**self.told, **facts}:
            if facts.get(name) != self.told.get(name):
                raise ClusterError(
                    f"the machines of the cluster differ: {name} is {facts.get(name)!r} on "
                    f"{seat.address} and {self.told.get(name)!r} on others"
                )
        seat.begun = True

    def _lose(self, seat: _Seat, why: Exception) -> None:
        """Gives the jobs of a dead worker to the others, and puts another one in its place."""
        if self._seats.pop(seat.place, None) is None:
            return
        self._pending = {
            call: (caller, job)
            for call, (caller, job) in self._pending.items()
            if caller is not seat
        }
        if not seat.begun:
            self._deaths[seat.place] += 1
        for job in seat.jobs:
            job.deaths += 1
        if len(seat.jobs) == 1 and seat.jobs[0].deaths >= DEATHS:
            error = ClusterError(
                f"{DEATHS} workers died on the same part of the work, perhaps out of memory; "
                f"the last: {first_line(why)}"
            )
            seat.jobs.popleft().set_exception(error)
        self._waiting.extendleft(reversed(seat.jobs))
        self._say(f"ray: lost the worker on {seat.address}; others take over its work")
        self._recruit()

    def _recruit(self) -> None:
        """Starts workers where there are none yet.

        Raises ClusterError if they die on every machine.
        """
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        kind = self._kind_of_device(nodes)
        new_seats = []
        for node in nodes:
            devices = int(node["Resources"].get(kind, 0))
            share = self._chips or devices
            for number in range(devices // share if devices else 0):
                place = (node["NodeID"], number)
                if place not in self._seats and self._deaths[place] < DEATHS:
                    new_seats.append(self._new_seat(node, place, _CLAIMS[kind](share)))
        self._report_recruits(new_seats, kind)
        self._alone = not self._seats
        self._looked = time.monotonic()

    def _kind_of_device(self, nodes: Sequence[Mapping[str, Any]]) -> str:
        """The first of the kinds to use that a machine of the cluster has."""
        for kind in self._kinds:
            if any(node["Resources"].get(kind, 0) >= 1 for node in nodes):
                return kind
        return "CPU"

    def _new_seat(
        self, node: Mapping[str, Any], place: tuple[str, int], claim: Mapping[str, Any]
    ) -> _Seat:
        """Starts a worker on a machine; it begins to load."""
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node["NodeID"], soft=False
        )
        actor = self._class.options(**claim, scheduling_strategy=strategy).remote()
        seat = _Seat(place, node["NodeManagerAddress"], actor)
        self._seats[place] = seat
        self._load(seat)
        return seat

    def _report_recruits(self, seats: Sequence[_Seat], kind: str) -> None:
        if seats:
            addresses = ", ".join(dict.fromkeys(seat.address for seat in seats))
            self._say(f"ray: {len(seats)} worker{'s' * (len(seats) > 1)} on {addresses}")
        elif not self._seats and max(self._deaths.values(), default=0) >= DEATHS:
            raise ClusterError(f"{DEATHS} workers on each machine died while starting")
        elif not self._seats and not self._alone:
            self._say(f"ray: waiting for a machine with {self._chips or 1} {kind} or more")


# A worker's claim on Ray's resources, by the kind of device that a machine has.
_CLAIMS: dict[str, Callable[[int], dict[str, Any]]] = {
    "TPU": lambda count: {"num_cpus": 0, "resources": {"TPU": count}},
    "GPU": lambda count: {"num_cpus": 0, "num_gpus": count},
    "CPU": lambda count: {"num_cpus": count},
}
