"""Lines of validation and test text, by which training text is searched.

A model that has read a test sentence in training is not tested by it. Corpora that are collected
anew often hold the sentences of older test sets.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int64, UInt64

from flaxformer_mt.config.schema import CorpusConfig, DataConfig
from flaxformer_mt.data.corpus import CorpusError, checked, open_sources
from flaxformer_mt.data.prepare import filters
from flaxformer_mt.data.prepare.manifest import Say


@dataclasses.dataclass(frozen=True)
class EvaluationText:
    """The sources of validation and test corpora, by hash."""

    keys: tuple[str, ...]  # of the corpora, such as data.test.held_out
    hashes: UInt64[np.ndarray, " sources"]  # sorted, each once
    owners: Int64[np.ndarray, " sources"]  # the first corpus that has it

    @classmethod
    def of(cls, config: DataConfig, say: Say) -> EvaluationText:
        """That of a config, as far as it can be read now: a test set may be elsewhere, which is
        said. Raises CorpusError for validation text."""
        keys: list[str] = []
        parts = []
        for key, corpus in _corpora(config):
            try:
                hashes = filters.line_hashes(_sources(corpus, config.folder, key))
            except CorpusError as error:
                if key.startswith("data.valid"):
                    raise
                say(f"prepare: {error}: training text is not searched for it")
                continue
            parts.append((hashes, np.full(len(hashes), len(keys))))
            keys.append(key)
        if not parts:
            return cls((), np.zeros(0, np.uint64), np.zeros(0, np.int64))
        hashes, owners = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        hashes, first = np.unique(hashes, return_index=True)
        return cls(tuple(keys), hashes, owners[first])

    @property
    def digest(self) -> str:
        """sha256 of the hashes, hexadecimal."""
        return hashlib.sha256(self.hashes.astype("<u8").tobytes()).hexdigest()

    def owners_of(self, sources: Sequence[bytes]) -> Int64[np.ndarray, " sources"]:
        """For each of these sources the number of the corpus that has it; -1 for none."""
        hashes = filters.line_hashes(sources)
        if not len(self.hashes):
            return np.full(len(hashes), -1)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[places] == hashes, self.owners[places], -1)


def _corpora(config: DataConfig) -> Iterator[tuple[str, CorpusConfig]]:
    """The corpora that are evaluated on, but for those that would have to be fetched."""
    if not config.valid_fraction:
        yield from config.validation.items()
    for corpus in config.test:
        if not corpus.source.is_fetched:
            yield f"data.test.{corpus.name}", corpus


def _sources(corpus: CorpusConfig, folder: str, key: str) -> Iterator[bytes]:
    for source in open_sources(corpus, folder, key, download=False):
        for record in source.records():
            if source.check(record) is None:
                src, _ = checked(record)
                yield src
