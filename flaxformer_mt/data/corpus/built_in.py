"""Kind `synthetic`: the built-in grammar, which makes its sentences and reads no file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, cast

from flaxformer_mt.data.corpus.pairs import Defect
from flaxformer_mt.data.corpus.paths import AnyPath


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    split: str
    size: int
    label: str
    """The corpus's place in the configuration: there is no file to name."""

    @property
    def files(self) -> dict[str, AnyPath]:
        return {}

    def records(self) -> Iterator[tuple[bytes, ...]]:
        # The grammar's lexicon is read for nobody else.
        from flaxformer_mt.data import synthetic

        split = cast(Literal["train", "valid", "test"], self.split)
        for src, tgt in synthetic.pairs(split, self.size):
            yield src.encode("utf-8"), tgt.encode("utf-8")

    def check(self, columns: tuple[bytes, ...]) -> Defect | None:
        """The grammar makes sound pairs."""
        return None
