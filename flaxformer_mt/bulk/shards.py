"""Which parts of an input a call works on, and the files that they become."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from flaxformer_mt.config import ConfigError

if TYPE_CHECKING:
    from flaxformer_mt.bulk.shard_records import Ends

LARGEST_SHARDS = 100_000


class ShareError(ConfigError):
    """A share of an input that can't be written: the argument of `translate_file` that asks for it,
    and what is wrong with it."""

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument} {problem}")
        self.argument, self.problem = argument, problem


@dataclasses.dataclass(frozen=True)
class OneShard:
    """Part I of N, written "I/N", with I from 0. Raises ShareError for another text."""

    text: str
    argument: ClassVar[str] = "shard"  # of `translate_file`

    def __post_init__(self) -> None:
        if not self.index < self.count <= LARGEST_SHARDS:
            raise ShareError(
                self.argument,
                f"{self.text}: must be I/N with I from 0 to N-1, such as 0/16, and at most "
                f"{LARGEST_SHARDS:,} parts",
            )

    @property
    def index(self) -> int:
        """The part's number, from 0."""
        return self._numbers()[0]

    @property
    def count(self) -> int:
        """The number of parts that the input is cut into."""
        return self._numbers()[1]

    @property
    def numbers(self) -> range:
        """The parts that are written."""
        return range(self.index, self.index + 1)

    def _numbers(self) -> tuple[int, int]:
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", self.text)
        return (int(match[1]), int(match[2])) if match else (0, 0)


@dataclasses.dataclass(frozen=True)
class AllShards:
    """All parts, one after the other. Raises ConfigError for an impossible number of them."""

    count: int
    argument: ClassVar[str] = "output_shards"  # of `translate_file`

    def __post_init__(self) -> None:
        check_count(self.count)

    @property
    def numbers(self) -> range:
        """The parts that are written."""
        return range(self.count)


Share = OneShard | AllShards


@dataclasses.dataclass(frozen=True)
class Cut:
    """The shards that a call writes: where each begins and ends in the input."""

    ends: Mapping[str, Ends]  # by file name
    line_count: int  # of the whole input


def check_count(count: int) -> None:
    """Raises ConfigError unless an input can be cut into so many parts."""
    if not 1 <= count <= LARGEST_SHARDS:
        raise ConfigError(f"{count} shards: must be from 1 to {LARGEST_SHARDS:,}")


def shard_name(output: str, index: int, count: int) -> str:
    """The file of a shard of `output`."""
    return f"{output}.shard-{index:0{len(str(count - 1))}}-of-{count}"
