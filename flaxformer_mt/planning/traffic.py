"""Bytes that instructions read and write in a device's memory."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from flaxformer_mt.planning.hlo import HloProgram, Instruction

Instructions = Mapping[str, Instruction]
_PARTIAL_READS = frozenset({"dynamic-slice", "slice", "gather"})


def moved_bytes(program: HloProgram, computation: str, instruction: Instruction) -> int:
    """Most bytes that one execution of an instruction of the computation reads and writes.

    Of an array that it reads or updates in pieces, only these count.
    """
    outside = program.computations[computation]
    operands = [outside[name].bytes for name in instruction.operands if name in outside]
    if instruction.opcode == "fusion" and "calls" in instruction.called:
        inside = program.computations[instruction.called["calls"]]
        return sum(_read_bytes(inside, operands)) + _written_bytes(inside, instruction)
    return _of_one(instruction, sum(operands))


def _of_one(instruction: Instruction, operands: int) -> int:
    """Of an instruction that takes `operands` bytes and is no fusion."""
    if instruction.opcode.endswith("-start"):
        return abs(instruction.bytes - operands)  # its result holds the operand as well
    if instruction.opcode == "dynamic-update-slice":
        return 2 * max(operands - instruction.bytes, 0)  # in place: the piece, read and written
    if instruction.opcode in ("gather", "dynamic-slice", "slice", "broadcast", "iota"):
        return 2 * instruction.bytes
    return operands + instruction.bytes


def _read_bytes(inside: Instructions, operands: list[int]) -> Iterator[int]:
    """Of each operand of a fusion, which may read only pieces of it, or write into it."""
    users: dict[str, list[Instruction]] = defaultdict(list)
    for user in inside.values():
        for name in user.operands:
            users[name].append(user)
    for instruction in inside.values():
        if instruction.opcode == "parameter":
            whole = operands[int(instruction.arguments)]
            yield min(whole, _pieces(instruction, users, whole))


def _pieces(array: Instruction, users: Mapping[str, list[Instruction]], whole: int) -> int:
    """Bytes that are read of an array in a fusion."""
    read = 0
    for user in users[array.name]:
        is_first = array.name not in user.operands[1:]
        if user.opcode in ("bitcast", "transpose"):
            is_result = not users[user.name]
            read += whole if is_result else _pieces(user, users, whole)
        elif user.opcode in _PARTIAL_READS and is_first:
            read += user.bytes
        elif user.opcode != "dynamic-update-slice" or not is_first:
            return whole
    return read


def _written_bytes(inside: Instructions, fusion: Instruction) -> int:
    """A fusion's results; where it updates an operand in place, only the new piece."""
    root = list(inside.values())[-1]
    results = [inside[name] for name in root.operands] if root.opcode == "tuple" else [root]
    return sum(_new_bytes(inside, result) for result in results)


def _new_bytes(inside: Instructions, result: Instruction) -> int:
    while result.opcode in ("bitcast", "copy") and result.operands[0] in inside:
        result = inside[result.operands[0]]
    if result.opcode == "dynamic-update-slice" and result.operands[1] in inside:
        return inside[result.operands[1]].bytes
    return result.bytes
