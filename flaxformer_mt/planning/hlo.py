"""Reads the text of `jax.stages.Compiled.as_text()` (https://openxla.org/xla/hlo_dumps)."""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping

from flaxformer_mt.planning import PlanningError

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(")
_NAME = re.compile(r"%([\w.\-]+)")
_ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,<=]*)\]")
_CALLED = re.compile(r"\b(calls|to_apply|body|condition|called_computations)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_BRANCH = re.compile(r"\b(?:true|false)_computation=%?([\w.\-]+)")

_SPARSECORE = 'async_execution_thread="sparsecore"'

_NO_ESTIMATE = 2**63 - 1

_BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32,
    "s64": 64, "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
    "token": 0, "opaque": 0,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation; `rest` has attributes and metadata."""

    name: str
    shape: str
    opcode: str
    arguments: str
    rest: str

    def attribute(self, pattern: str) -> str | None:
        """The first group of a pattern in `rest`."""
        found = re.search(pattern, self.rest)
        return found[1] if found else None

    @property
    def operands(self) -> list[str]:
        """Names of the instructions whose results it takes."""
        return _NAME.findall(self.arguments)

    @property
    def op_name(self) -> str:
        """Its place in the traced function; empty for the compiler's own."""
        return self.attribute(r'op_name="([^"]*)"') or ""

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate of one execution, if it has any: it writes none as 2^63 - 1."""
        found = self.attribute(r'"estimated_cycles":"(\d+)"')
        return None if found is None or int(found) == _NO_ESTIMATE else int(found)

    @property
    def called(self) -> dict[str, str]:
        """Computations by attribute: `calls`, `to_apply`, `body`, ..."""
        return dict(_CALLED.findall(self.rest))

    @property
    def bytes(self) -> int:
        return shape_bytes(self.shape)


@dataclasses.dataclass(frozen=True)
class Program:
    """The computations of a compiled program by name, each its instructions by name in order."""

    entry: str
    computations: Mapping[str, Mapping[str, Instruction]]

    def operand_bytes(self, computation: str, instruction: Instruction) -> int:
        known = self.computations[computation]
        return sum(known[name].bytes for name in instruction.operands if name in known)

    def trips(self, computation: str, loop: Instruction) -> int | None:
        """How often a `while` runs its body, if known: the compiler says so, or it is
        `jax.lax.scan`'s loop, a counter from a constant, by one, below another constant."""
        if found := loop.attribute(r'"known_trip_count":\{"n":"(\d+)"\}'):
            return int(found)
        condition = self.computations[loop.called["condition"]]
        compare = [*condition.values()][-1]
        if compare.opcode != "compare" or "direction=LT" not in compare.rest:
            return None
        counter, limit = (condition[name] for name in compare.operands)
        position = counter.attribute(r"\bindex=(\d+)")
        if position is None or limit.opcode != "constant" or len(loop.operands) != 1:
            return None
        known = self.computations[computation]
        start = known.get(loop.operands[0])
        if start is None or start.opcode != "tuple":
            return None
        begin = known[start.operands[int(position)]]
        while begin.opcode in ("copy", "bitcast", "convert"):
            begin = known[begin.operands[0]]
        if begin.opcode != "constant":
            return None
        return max(int(limit.arguments) - int(begin.arguments), 0)


@dataclasses.dataclass(frozen=True)
class Execution:
    """An instruction and how often a run executes it. `fused`: its time is in another
    instruction's. `guessed`: in a loop of unknown length. `offloaded`: on a SparseCore, beside the
    rest; its estimated cycles mean nothing."""

    computation: str
    instruction: Instruction
    times: int
    fused: bool
    guessed: bool
    offloaded: bool = False


def parse(text: str) -> Program:
    """The program that the text describes. Raises PlanningError."""
    computations: dict[str, dict[str, Instruction]] = {}
    entry, inside = "", False
    instructions: dict[str, Instruction] = {}
    for line in text.splitlines():
        if not line.startswith(" ") and (found := _COMPUTATION.match(line)):
            instructions = computations[found[2]] = {}
            entry, inside = found[2] if found[1] else entry, True
        elif line.startswith("}"):
            inside = False
        elif inside and (found := _INSTRUCTION.match(line)):
            after = _split(line[found.end() :])
            instructions[found[1]] = Instruction(found[1], found[2], found[3], *after)
    if not entry:
        raise PlanningError("the compiled program's text has no ENTRY computation")
    return Program(entry, computations)


def executions(program: Program, *, unknown_trips: int = 1) -> Iterator[Execution]:
    """Every instruction of one run, unknown loops by `unknown_trips`, every branch taken."""

    def walk(computation: str, inherited: Execution) -> Iterator[Execution]:
        for item in program.computations[computation].values():
            execution = dataclasses.replace(inherited, computation=computation, instruction=item)
            yield execution
            called = item.called
            inner = execution
            if item.opcode == "while":
                trips = program.trips(computation, item)
                inner = dataclasses.replace(
                    execution,
                    times=execution.times * (unknown_trips if trips is None else trips),
                    guessed=execution.guessed or trips is None,
                )
                nested = [called["body"], called["condition"]]
            elif item.opcode == "conditional":
                listed = _BRANCHES.search(item.rest)
                nested = _NAME.findall(listed[1]) if listed else _BRANCH.findall(item.rest)
            elif item.opcode == "call":
                nested = [called["to_apply"]]
            elif item.opcode == "call-start" and "to_apply" in called:
                inner = dataclasses.replace(execution, offloaded=True)
                nested = [called["to_apply"]]
            elif item.opcode in ("fusion", "async-start") and "calls" in called:
                inner = dataclasses.replace(
                    execution,
                    fused=execution.fused or item.opcode == "fusion",
                    offloaded=execution.offloaded or _SPARSECORE in item.rest,
                )
                nested = [called["calls"]]
            else:
                continue  # a reduction's to_apply is a scalar function
            for name in nested:
                yield from walk(name, inner)

    first = next(iter(program.computations[program.entry].values()))
    return walk(program.entry, Execution(program.entry, first, 1, False, False))


def shape_bytes(shape: str) -> int:
    """Bytes of `f32[8,128]{1,0:T(8,128)}` or a tuple, without tiles' padding."""
    total = 0
    for kind, sizes in _ARRAY.findall(shape):
        bits = 8 if kind.startswith("f8") else _BITS.get(kind)
        if bits is None:
            raise PlanningError(f"unknown element type '{kind}' in the shape {shape}")
        total += math.prod(int(size.lstrip("<=")) for size in sizes.split(",") if size) * bits // 8
    return total


def _split(text: str) -> tuple[str, str]:
    """The operands' text and what follows their closing parenthesis."""
    depth = 1
    for found in re.finditer(r"[()]", text):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return text[: found.start()], text[found.end() :]
    return text, ""
