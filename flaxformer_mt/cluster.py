"""Work spread over the machines of a Ray cluster, its results in order.

The caller alone reads what is to be done and gets what became of it: the machines need no files in
common but those that `begin` reads. A worker is a Ray actor, a process with chips of its own; it
keeps what `begin` has loaded. What a lost worker or machine had to do goes to the others.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from flaxformer_mt.errors import FlaxformerError, UserError, first_line, install

QUEUED = 2  # items at a worker: the next one is there when it has done one
AHEAD = 16  # items for each worker whose results may wait for an earlier one's
DEATHS = 4  # workers that an item, or loading on one machine, may cost
_LOOK = 2.0  # seconds between two looks at what machines there are, while nothing ends

Begin = Callable[[], tuple[dict[str, Any], Callable[[Any], Any]]]
"""Loads what a worker needs; what it tells of that, alike on all machines, and the worker's work.

It can be pickled."""


class ClusterError(FlaxformerError):
    """A cluster that cannot be reached or used, workers that end whatever machine they run on."""


class NoRay(UserError):
    """The package is missing."""


class _Worker:
    """In an actor's process."""

    def begin(self, begin: Begin) -> dict[str, Any]:
        told, self._work = begin()
        return told

    def work(self, item: Any) -> Any:
        return self._work(item)


class _Job(Future[Any]):
    deaths = 0

    def __init__(self, item: Any) -> None:
        super().__init__()
        self.item = item


@dataclasses.dataclass(eq=False)
class _Seat:
    """A worker, and where it runs: `place` is a node and a number there."""

    place: tuple[str, int]
    address: str
    actor: Any
    begun: bool = False
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
    """The workers of a cluster, of which one at least has begun.

    The default `address` is RAY_ADDRESS's, or this machine's; without one, a cluster starts here,
    on the loopback interface. Machines with TPUs have a worker for
    each `chips` of them, or for all; else those with GPUs, else with CPUs, among `kinds`. Meanwhile
    `sys.stdout` is standard error. Raises NoRay, ClusterError, and what `begin` raises.
    """
    try:
        import ray
    except ImportError as error:
        raise NoRay(f"--engine ray: ray is not installed: {install('ray')}") from error

    handler = signal.getsignal(signal.SIGTERM)
    # Ray prints what workers and machines died of to standard output, where results go.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            # Ray itself tries for a quarter of an hour.
            there = address or os.environ.get("RAY_ADDRESS", "")
            if found := re.fullmatch(r"([\w.-]+):(\d+)", there):
                socket.create_connection((found[1], int(found[2])), timeout=30).close()
            _connect(ray, address)
        except (OSError, RuntimeError, ValueError) as error:
            raise ClusterError(f"the Ray cluster cannot be reached: {first_line(error)}") from error
        try:
            signal.signal(signal.SIGTERM, handler)  # Ray has put its own in its place
            made = Workers(ray, say, chips, kinds)
            made.start(begin)
            yield made
        except ray.exceptions.RayError as error:
            raise ClusterError(f"the Ray cluster failed: {first_line(error)}") from error
        finally:
            ray.shutdown()  # which ends the workers


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
    elsewhere = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init("local", include_dashboard=False, **quiet)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = elsewhere


class Workers:
    def __init__(
        self, ray: Any, say: Callable[[str], None], chips: int | None, kinds: Sequence[str]
    ) -> None:
        self._ray = ray
        self._say = say
        self._chips = chips
        self._kinds = kinds
        self._class = ray.remote(_Worker)
        self._seats: dict[tuple[str, int], _Seat] = {}
        self._pending: dict[Any, tuple[_Seat, _Job | None]] = {}  # by what Ray gives for a call
        self._waiting: collections.deque[_Job] = collections.deque()
        self._deaths: collections.Counter[tuple[str, int]] = collections.Counter()  # in `begin`
        self._looked = 0.0  # when the machines were last counted
        self._alone = False  # there was none
        self.told: dict[str, Any] = {}  # by the first worker

    def start(self, begin: Begin) -> None:
        """Every worker loads this, now or when it comes, in place of what it has loaded before."""
        self._begin, self.told = self._ray.put(begin), {}
        for seat in self._seats.values():
            seat.begun = False
            self._load(seat)
        self._recruit()
        while not any(seat.begun for seat in self._seats.values()):
            self._wait()

    def map(self, items: Iterable[Any], ahead: int = AHEAD) -> Iterator[tuple[Any, Any]]:
        """Each item and what became of it, in order. Raises what the work on an item raises.

        At most `ahead` for each worker are read before the first of them is given.
        """
        items, jobs = iter(items), collections.deque[_Job]()
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
        for length in range(QUEUED):  # all have one before any has two
            for seat in self._seats.values():
                if self._waiting and seat.begun and len(seat.jobs) <= length:
                    # What a worker died with is done alone: it may be innocent of that.
                    if seat.jobs and (seat.jobs[0].deaths or self._waiting[0].deaths):
                        continue
                    job = self._waiting.popleft()
                    seat.jobs.append(job)
                    self._pending[seat.actor.work.remote(job.item)] = seat, job

    def _wait(self) -> None:
        """Takes what has ended by now, or looks for further machines after a while."""
        if self._pending:
            ended, _ = self._ray.wait(list(self._pending), timeout=_LOOK)
        else:
            time.sleep(_LOOK)
            ended = []
        for call in ended:
            if call not in self._pending:  # of a worker that was lost a moment ago
                continue
            seat, job = self._pending.pop(call)
            try:
                result = self._ray.get(call)
            except self._ray.exceptions.RayTaskError as error:
                cause = error.cause if isinstance(error.cause, Exception) else error
                cause.__cause__ = None if isinstance(cause, FlaxformerError) else error  # its trace
                if job is None:
                    raise cause  # noqa: B904
                job.set_exception(cause)
            except self._ray.exceptions.RayError as error:
                self._lose(seat, error)
                continue
            else:
                if job is None:
                    self._join(seat, result)
                    continue
                job.set_result(result)
            seat.jobs.remove(job)
        if time.monotonic() - self._looked >= _LOOK:
            self._recruit()

    def _load(self, seat: _Seat) -> None:
        self._pending[seat.actor.begin.remote(self._begin)] = seat, None

    def _join(self, seat: _Seat, told: dict[str, Any]) -> None:
        """Takes a worker that has begun. Raises ClusterError where it tells of other things."""
        self.told = self.told or told
        for name in {**self.told, **told}:
            if (here := told.get(name)) != (there := self.told.get(name)):
                there = f"{name} is {here!r} on {seat.address} and {there!r} on others"
                raise ClusterError(f"the machines of the cluster differ: {there}")
        seat.begun = True

    def _lose(self, seat: _Seat, why: Exception) -> None:
        """What it had to do goes to the others, and another worker takes its place."""
        if self._seats.pop(seat.place, None) is None:
            return
        for call in [call for call, (other, _) in self._pending.items() if other is seat]:
            del self._pending[call]
        if not seat.begun:
            self._deaths[seat.place] += 1
        for job in seat.jobs:
            job.deaths += 1
        if len(seat.jobs) == 1 and seat.jobs[0].deaths >= DEATHS:
            text = f"{DEATHS} workers died on the same part of the work, perhaps out of memory"
            error = ClusterError(f"{text}; the last: {first_line(why)}")
            seat.jobs.popleft().set_exception(error)
        self._waiting.extendleft(reversed(seat.jobs))
        self._say(f"ray: lost the worker on {seat.address}; others take over its work")
        self._recruit()

    def _recruit(self) -> None:
        """Workers where there are none yet. Raises ClusterError if they end wherever they begin."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        there = {kind for node in nodes for kind in _CLAIMS if node["Resources"].get(kind, 0) >= 1}
        kind = next((kind for kind in self._kinds if kind in there), "CPU")
        began = []
        for node in nodes:
            count = int(node["Resources"].get(kind, 0))
            share = self._chips or count
            for number in range(count // share if count else 0):
                place = (node["NodeID"], number)
                if place in self._seats or self._deaths[place] >= DEATHS:
                    continue
                strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                    node["NodeID"], soft=False
                )
                claim = _CLAIMS[kind](share)
                actor = self._class.options(**claim, scheduling_strategy=strategy).remote()
                seat = _Seat(place, node["NodeManagerAddress"], actor)
                self._seats[place] = seat
                self._load(seat)
                began.append(seat.address)
        if began:
            where = ", ".join(dict.fromkeys(began))
            self._say(f"ray: {len(began)} worker{'s' * (len(began) > 1)} on {where}")
        elif not self._seats and max(self._deaths.values(), default=0) >= DEATHS:
            raise ClusterError(f"{DEATHS} workers on each machine died while starting")
        elif not self._seats and not self._alone:
            self._say(f"ray: waiting for a machine with {self._chips or 1} {kind} or more")
        self._alone = not self._seats
        self._looked = time.monotonic()


# What a worker asks Ray for, by the kind of device that a machine has.
_CLAIMS: dict[str, Callable[[int], dict[str, Any]]] = {
    "TPU": lambda count: {"num_cpus": 0, "resources": {"TPU": count}},
    "GPU": lambda count: {"num_cpus": 0, "num_gpus": count},
    "CPU": lambda count: {"num_cpus": count},
}
