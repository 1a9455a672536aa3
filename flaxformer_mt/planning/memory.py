"""A compiled program's memory on one device, and what the compiler says where it does not fit."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_EXCEEDS = re.compile(
    r"\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)"
    r"|Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of HBM on one device, as the compiler has laid them out.

    `aliased` is the part of the outputs that takes the place of arguments (the donated state).
    `peak` is the most that arguments, outputs and temporaries take at one time.
    """

    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    code: int
    peak: int

    def needed(self, limit: int) -> int:
        """What a device of `limit` bytes must have free, at most.

        The sum. Or, where that is more than there is: pieces that are never needed together share a
        place (a big batch under `remat` adds up to 19.8 GiB, and has 14.4 at one time), and since
        the compiler has accepted the program, it is the most at one time that counts.
        """
        together = self.arguments + self.outputs - self.aliased + self.temporaries
        whole = max(self.peak, together) + self.code
        return whole if whole <= limit else self.peak + self.code


@dataclasses.dataclass(frozen=True, kw_only=True)
class TooLarge:
    """The compiler gave up: `needed` and `available` bytes as it says them."""

    needed: int
    available: int
    message: str


def memory_of(analysis: Any) -> Memory:
    """From `jax.stages.Compiled.memory_analysis()`."""
    return Memory(
        arguments=analysis.argument_size_in_bytes,
        outputs=analysis.output_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        aliased=analysis.alias_size_in_bytes,
        code=analysis.generated_code_size_in_bytes,
        peak=analysis.peak_memory_in_bytes,
    )


def too_large(error: Exception) -> TooLarge | None:
    """What a failed compilation says about memory; None for a failure of another kind."""
    text = str(error)
    if "RESOURCE_EXHAUSTED" not in text:
        return None
    found = _EXCEEDS.search(text)
    if found is None:
        return None
    numbers = [group for group in found.groups() if group is not None]
    needed, available = (round(float(numbers[i]) * _UNITS[numbers[i + 1].upper()]) for i in (0, 2))
    return TooLarge(needed=needed, available=available, message=text.splitlines()[0])
