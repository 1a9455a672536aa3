"""Kind `array_record`: ArrayRecord shards whose records are JSON objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from flaxformer_mt.data.corpus.json_records import JsonKeys
from flaxformer_mt.data.corpus.pairs import Defect
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.data.corpus.shards import read_array_record


@dataclasses.dataclass(frozen=True)
class ArrayRecords:
    """Shards read one after the other; record n counts through all of them."""

    shards: tuple[AnyPath, ...]
    pattern: str
    """What found the shards: it stands for all of them in messages."""
    keys: JsonKeys

    @property
    def files(self) -> dict[str, AnyPath]:
        return {f"path[{number}]": shard for number, shard in enumerate(self.shards)}

    @property
    def label(self) -> str:
        return self.pattern

    def records(self) -> Iterator[tuple[bytes, ...]]:
        for shard in self.shards:
            yield from map(self.keys.columns, read_array_record(shard))

    def check(self, columns: tuple[bytes, ...]) -> Defect | None:
        return self.keys.check(columns, self.pattern)
