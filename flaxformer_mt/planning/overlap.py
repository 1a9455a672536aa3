"""What a compiled schedule hides of a step's communication behind its compute.

A compiled program is a schedule: instructions run in the order in which they are written. A
collective hides behind compute in one of two forms. Either it is started by one instruction and
awaited by another, and what stands between them computes meanwhile; or fusions carry it on in
pieces, each beside a product of its own, and only these hide it. Everything else waits.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from flaxformer_mt.planning.collectives import (
    Communication,
    channel_of,
    collectives_inside,
    is_collective,
    is_in_pieces,
)
from flaxformer_mt.planning.hlo import Execution, HloProgram, Instruction, executions


@dataclasses.dataclass(frozen=True)
class Exposed:
    """Seconds of a step's collectives that are not hidden.

    `most` hides only what the schedule does, with one collective on the way at a time. `least` also
    hides everything that the schedule has started and not yet awaited, however long it takes.
    """

    most: float
    least: float


def exposed(
    program: HloProgram,
    communications: Iterable[Communication],
    seconds_of: Callable[[Execution], float],
) -> Exposed:
    """By the order of the program's instructions; `seconds_of` says how long each one computes.

    What a loop computes hides only the collectives in the loop.
    """
    seconds_by_key = {_key(item.execution.instruction): item.seconds for item in communications}
    reader = _Reader(program, seconds_by_key, seconds_of)
    beside_others = _called_by_starts(program)
    schedules: dict[tuple[str, int], _Schedule] = {}
    for execution in executions(program):
        if execution.fused or execution.computation in beside_others:
            continue
        place = execution.computation, execution.times
        if place not in schedules:
            schedules[place] = _Schedule(_last_pieces(program, execution.computation))
        reader.proceed(schedules[place], execution)

    most = sum(times * schedule.waited() for (_, times), schedule in schedules.items())
    least = sum(times * schedule.synchronous for (_, times), schedule in schedules.items())
    return Exposed(most, least)


@dataclasses.dataclass
class _Transfer:
    """A collective on its way."""

    remaining: float  # seconds
    in_pieces: bool


class _Schedule:
    """The instructions of one computation, one after the other.

    One collective at a time is on the way: of those that were started, the first.
    """

    def __init__(self, last_pieces: frozenset[str]) -> None:
        self.last_pieces = last_pieces  # instructions that end a collective in pieces
        self.synchronous = 0.0
        self._waited = 0.0
        self._transfers: dict[str, _Transfer] = {}

    def transmit(self, seconds: float) -> None:
        """A collective beside which nothing computes."""
        self.synchronous += seconds
        self._waited += seconds

    def start(self, key: str, seconds: float, *, in_pieces: bool) -> None:
        self._transfers.setdefault(key, _Transfer(seconds, in_pieces))

    def compute(self, seconds: float, pieces: Iterable[str] = ()) -> None:
        """Carries on the collectives in these pieces, then those that only wait for their end."""
        waiting = [key for key, transfer in self._transfers.items() if not transfer.in_pieces]
        for key in (*pieces, *waiting):
            transfer = self._transfers[key]
            carried = min(seconds, transfer.remaining)
            transfer.remaining -= carried
            seconds -= carried

    def wait(self, key: str) -> None:
        """For the end of a collective; those that wait before it come first."""
        if key not in self._transfers:
            return  # started outside this computation
        stands_in_line = not self._transfers[key].in_pieces
        for earlier, transfer in self._transfers.items():
            if earlier == key or (stands_in_line and not transfer.in_pieces):
                self._waited += transfer.remaining
                transfer.remaining = 0.0
            if earlier == key:
                break
        del self._transfers[key]

    def waited(self) -> float:
        """Seconds in which nothing computes, with what is on the way at the end."""
        return self._waited + sum(transfer.remaining for transfer in self._transfers.values())


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Runs a program's instructions on schedules, one at a time."""

    program: HloProgram
    seconds_by_key: Mapping[str, float]  # of each collective
    seconds_of: Callable[[Execution], float]

    def proceed(self, schedule: _Schedule, execution: Execution) -> None:
        """Runs one instruction."""
        instruction = execution.instruction
        inside = collectives_inside(self.program, instruction)
        pieces = [_key(inner) for inner in inside if is_in_pieces(inner)]
        if pieces:
            self._carry_on(schedule, execution, pieces)
        elif instruction.opcode.endswith("-done"):
            for key in _awaited(self.program, execution):
                schedule.wait(key)
        elif inside or is_collective(instruction):
            self._communicate(schedule, instruction, inside or [instruction])
        else:
            schedule.compute(self.seconds_of(execution))

    def _carry_on(self, schedule: _Schedule, execution: Execution, pieces: list[str]) -> None:
        """A fusion with these pieces of collectives."""
        for key in pieces:
            schedule.start(key, self.seconds_by_key[key], in_pieces=True)
        schedule.compute(self.seconds_of(execution), pieces)
        if execution.instruction.name in schedule.last_pieces:
            for key in pieces:
                schedule.wait(key)

    def _communicate(
        self, schedule: _Schedule, instruction: Instruction, parts: Iterable[Instruction]
    ) -> None:
        """An instruction that starts collectives, or that is nothing else."""
        # (A `recv` takes no time of its own: its `send` has it.)
        seconds = sum(self.seconds_by_key.get(_key(part), 0.0) for part in parts)
        if instruction.opcode.endswith("-start") or instruction.opcode in ("send", "recv"):
            schedule.start(_key(instruction), seconds, in_pieces=False)
        else:
            schedule.transmit(seconds)


def _key(instruction: Instruction) -> str:
    """What names a collective: its channel where several instructions are parts of it."""
    if is_in_pieces(instruction) or instruction.opcode in ("send", "recv"):
        return f"channel {channel_of(instruction)}"
    return instruction.name


def _awaited(program: HloProgram, execution: Execution) -> Iterator[str]:
    """The collectives whose end an instruction waits for."""
    instructions = program.computations[execution.computation]
    for name in execution.instruction.operands:
        if name in instructions:
            yield _key(instructions[name])


def _last_pieces(program: HloProgram, computation: str) -> frozenset[str]:
    """The instructions of a computation with which its collectives in pieces end."""
    last: dict[str, str] = {}
    for instruction in program.computations[computation].values():
        for inner in collectives_inside(program, instruction):
            if is_in_pieces(inner):
                last[_key(inner)] = instruction.name
    return frozenset(last.values())


def _called_by_starts(program: HloProgram) -> frozenset[str]:
    """Computations that run beside others: those that `async-start` and `call-start` call."""
    called: dict[str, list[str]] = defaultdict(list)
    for name, instructions in program.computations.items():
        for instruction in instructions.values():
            if instruction.opcode in ("async-start", "call-start"):
                called[name] += instruction.called.values()
    reached: set[str] = set()
    remaining = [name for names in called.values() for name in names]
    while remaining:
        name = remaining.pop()
        if name not in reached:
            reached.add(name)
            remaining += called[name]
    return frozenset(reached)
