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
        match = re.search(pattern, self.rest)
        return match[1] if match else None

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
        estimate = self.attribute(r'"estimated_cycles":"(\d+)"')
        if estimate is None or int(estimate) == _NO_ESTIMATE:
            return None
        return int(estimate)

    @property
    def custom_call_target(self) -> str | None:
        """The library's function that a custom call is."""
        return self.attribute(r'custom_call_target="([^"]*)"')

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of its result's axes, or of the first array of a tuple."""
        match = _ARRAY.search(self.shape)
        if match is None:
            raise PlanningError(f"the shape of {self.name} is not an array's: {self.shape}")
        return tuple(int(size.lstrip("<=")) for size in match[2].split(",") if size)

    @property
    def called(self) -> dict[str, str]:
        """Computations by attribute: `calls`, `to_apply`, `body`, ..."""
        return dict(_CALLED.findall(self.rest))

    @property
    def bytes(self) -> int:
        return shape_bytes(self.shape)

    @property
    def result_arrays(self) -> list[tuple[str, int]]:
        """Element type and bytes of its result, or of each array of a tuple."""
        return [(array[1], shape_bytes(array[0])) for array in _ARRAY.finditer(self.shape)]


@dataclasses.dataclass(frozen=True)
class HloProgram:
    """The computations of a compiled program by name, each its instructions by name in order."""

    entry: str
    computations: Mapping[str, Mapping[str, Instruction]]

    def operand_bytes(self, computation: str, instruction: Instruction) -> int:
        instructions = self.computations[computation]
        return sum(
            instructions[name].bytes for name in instruction.operands if name in instructions
        )

    def trips(self, computation: str, loop: Instruction) -> int | None:
        """How often a `while` of the computation runs its body; None if unknown.

        It is known if the compiler says so, or if the loop is `jax.lax.scan`'s: a counter from a
        constant, by one, below another constant.
        """
        known_trips = loop.attribute(r'"known_trip_count":\{"n":"(\d+)"\}')
        if known_trips:
            return int(known_trips)

        condition = self.computations[loop.called["condition"]]
        compare = [*condition.values()][-1]
        if compare.opcode != "compare" or "direction=LT" not in compare.rest:
            return None
        counter, limit = (condition[name] for name in compare.operands)
        position = counter.attribute(r"\bindex=(\d+)")
        if position is None or limit.opcode != "constant" or len(loop.operands) != 1:
            return None

        instructions = self.computations[computation]
        initial_tuple = instructions.get(loop.operands[0])
        if initial_tuple is None or initial_tuple.opcode != "tuple":
            return None
        start = instructions[initial_tuple.operands[int(position)]]
        while start.opcode in ("copy", "bitcast", "convert"):
            start = instructions[start.operands[0]]
        if start.opcode != "constant":
            return None
        return max(int(limit.arguments) - int(start.arguments), 0)


@dataclasses.dataclass(frozen=True)
class Execution:
    """An instruction of a computation, and how often a run executes it."""

    computation: str
    instruction: Instruction
    times: int
    fused: bool  # its time is in another instruction's
    guessed: bool  # in a loop of unknown length
    offloaded: bool = False  # to a SparseCore; its estimated cycles mean nothing


def parse(text: str) -> HloProgram:
    """The program that the text describes. Raises PlanningError."""
    computations: dict[str, dict[str, Instruction]] = {}
    entry = ""
    instructions: dict[str, Instruction] | None = None  # of the computation that the line is in
    for line in text.splitlines():
        if not line.startswith(" ") and (match := _COMPUTATION.match(line)):
            is_entry, name = match.groups()
            instructions = computations[name] = {}
            if is_entry:
                entry = name
        elif line.startswith("}"):
            instructions = None
        elif instructions is not None and (match := _INSTRUCTION.match(line)):
            name, shape, opcode = match.groups()
            arguments, attributes = _split(line[match.end() :])
            instructions[name] = Instruction(name, shape, opcode, arguments, attributes)
    if not entry:
        raise PlanningError("the compiled program's text has no ENTRY computation")
    return HloProgram(entry, computations)


def executions(program: HloProgram, *, unknown_trips: int = 1) -> Iterator[Execution]:
    """Every instruction of one run, unknown loops by `unknown_trips`, every branch taken."""
    first = next(iter(program.computations[program.entry].values()))
    run = Execution(program.entry, first, 1, False, False)
    return _executions(program, program.entry, run, unknown_trips)


def _executions(
    program: HloProgram, computation: str, caller: Execution, unknown_trips: int
) -> Iterator[Execution]:
    """Every instruction of a computation, and those it calls, as often as its caller runs it."""
    for instruction in program.computations[computation].values():
        execution = dataclasses.replace(caller, computation=computation, instruction=instruction)
        yield execution
        callees = _callees(instruction)
        if not callees:
            continue
        inside = _inside(program, execution, unknown_trips)
        for callee in callees:
            yield from _executions(program, callee, inside, unknown_trips)


def _callees(instruction: Instruction) -> list[str]:
    """Names of the computations that an instruction runs."""
    called = instruction.called
    match instruction.opcode:
        case "while":
            return [called["body"], called["condition"]]
        case "conditional":
            branches = _BRANCHES.search(instruction.rest)
            return _NAME.findall(branches[1]) if branches else _BRANCH.findall(instruction.rest)
        case "call":
            return [called["to_apply"]]
        case "call-start" if "to_apply" in called:
            return [called["to_apply"]]
        case "fusion" | "async-start" if "calls" in called:
            return [called["calls"]]
    return []  # a reduction's to_apply is a scalar function


def _inside(program: HloProgram, execution: Execution, unknown_trips: int) -> Execution:
    """How often, and on which core, the computations run that an instruction calls."""
    instruction = execution.instruction
    match instruction.opcode:
        case "while":
            trips = program.trips(execution.computation, instruction)
            return dataclasses.replace(
                execution,
                times=execution.times * (unknown_trips if trips is None else trips),
                guessed=execution.guessed or trips is None,
            )
        case "call-start":
            return dataclasses.replace(execution, offloaded=True)
        case "fusion" | "async-start":
            return dataclasses.replace(
                execution,
                fused=execution.fused or instruction.opcode == "fusion",
                offloaded=execution.offloaded or _SPARSECORE in instruction.rest,
            )
    return execution


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
    """The operands' text, and the text after their closing parenthesis."""
    depth = 1
    for parenthesis in re.finditer(r"[()]", text):
        depth += 1 if parenthesis[0] == "(" else -1
        if depth == 0:
            return text[: parenthesis.start()], text[parenthesis.end() :]
    return text, ""
