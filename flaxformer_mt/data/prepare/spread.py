"""Corpora read and encoded by the machines of a Ray cluster, with the bytes of one machine.

Lines of plain text are read where they are encoded: tasks first count those of every megabyte, so
that any machine finds its own. Text that must be read from its start, such as compressed text, is
read here and sent. Results are merged here, in order.
"""

import contextlib
import dataclasses
import functools
import itertools
import operator
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import regex
from jaxtyping import Int64

from flaxformer_mt.cluster import Begin, ClusterError, Workers
from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data.corpus import (
    CorpusRecord,
    LinePlace,
    PairSource,
    open_split,
    paths,
    require_equal,
)
from flaxformer_mt.data.corpus.text_files import BLOCK, count_line_ends, require_stamp
from flaxformer_mt.data.prepare.encode import CHUNK, Encoded, EncodingSettings, Range, encode_part
from flaxformer_mt.data.prepare.finished_parts import FinishedParts
from flaxformer_mt.data.prepare.manifest import sha256_of
from flaxformer_mt.files.reading import AnyPath
from flaxformer_mt.versions import git_commit, package_versions

Cluster = Callable[[Begin], AbstractContextManager[Workers]]  # has workers begin
SPAN = 4 * CHUNK  # records of a task, which opens each file once
_COUNTED = 64 * BLOCK
_AHEAD = 4  # tasks for each worker, whose tokens may wait here


@dataclasses.dataclass(frozen=True)
class _Surveyed:
    """A plain file: how many lines it has, and how many end before each of its blocks."""

    stamp: tuple[int, int]
    sha256: str
    lines: int
    line_ends: Int64[np.ndarray, " blocks"]

    @classmethod
    def of(
        cls, stamp: tuple[int, int], sha256: str, counted: Sequence[tuple[list[int], bool]]
    ) -> "_Surveyed":
        """`counted` are the results of `count_line_ends` for all of the file, in order."""
        counts = itertools.chain.from_iterable(counts for counts, _ in counted)
        ends = np.cumsum([0, *counts])
        has_unended_line = bool(counted) and not counted[-1][1]
        return cls(stamp, sha256, int(ends[-1]) + has_unended_line, ends)

    def place(self, first: int) -> LinePlace:
        block = max(0, int(np.searchsorted(self.line_ends, first)) - 1)
        return LinePlace(first, int(self.line_ends[block]), block * BLOCK, self.stamp)


class Spread:
    """A cluster's workers, and the places of the lines of seekable corpora."""

    def __init__(self, workers: Workers, sources: Iterable[PairSource], config: DataConfig) -> None:
        """Raises ClusterError for machines that may encode otherwise; CorpusError."""
        self._workers = workers
        self._versions = _versions(config)
        self._finished: FinishedParts | None = None
        for name, version in self._versions.items():
            cluster_version = workers.told[name]
            if cluster_version != version:
                raise ClusterError(
                    f"the cluster has {name} {cluster_version}, but here is {version}"
                )

        seekable = [source for source in sources if source.is_seekable]
        files = {str(path): path for source in seekable for path in source.files.values()}
        self._files = self._surveyed(files)

    def _surveyed(self, files: Mapping[str, AnyPath]) -> dict[str, _Surveyed]:
        """Digests and line counts of plain files, by their names. Raises CorpusError."""
        stamps = {name: paths.stamp(path) for name, path in files.items()}
        tasks = (task for name, path in files.items() for task in _survey_tasks(path, stamps[name]))
        done = self._done(tasks)
        surveyed = {}
        for name, stamp in stamps.items():
            sha256 = next(done)
            counted = list(itertools.islice(done, len(_counted_starts(stamp))))
            surveyed[name] = _Surveyed.of(stamp, sha256, counted)
        return surveyed

    def described(self) -> list[dict[str, Any]]:
        """The files, in the form of the `known` ones of `describe_inputs`."""
        return [
            {"path": name, "size": file.stamp[0], "mtime_ns": file.stamp[1], "sha256": file.sha256}
            for name, file in self._files.items()
        ]

    def size(self, source: PairSource) -> int | None:
        """How many records a seekable corpus has. Raises CorpusError if its sides differ."""
        if not source.is_seekable:
            return None
        counts = [self._files[str(path)].lines for path in source.files.values()]
        require_equal(source.files.values(), counts)
        return counts[0]

    def records(self, source: PairSource, numbers: Sequence[int]) -> Iterator[CorpusRecord]:
        """These records of a seekable corpus, whose numbers are in order."""
        spans = itertools.groupby(numbers, lambda number: number // SPAN)
        tasks = (
            functools.partial(_picked, self._range("", source, span * SPAN), list(of_span))
            for span, of_span in spans
        )
        return itertools.chain.from_iterable(self._done(tasks))

    def keep(self, folder: AnyPath, made_from: Any) -> FinishedParts:
        """Uses the finished work in a folder and adds to it; `made_from`, as JSON, decides it."""
        self._finished = FinishedParts(folder, [made_from, self._versions, git_commit()])
        return self._finished

    def encoder(self, settings: EncodingSettings) -> Callable[[str, PairSource], Iterator[Encoded]]:
        """Encodes a split's corpus, chunk by chunk in order, as `encode_chunk` does."""
        encode = functools.partial(encode_part, settings=settings)
        self._workers.start(functools.partial(_begun, encode, settings.data))
        numbers = itertools.count()

        def encoded(split: str, source: PairSource) -> Iterator[Encoded]:
            number = next(numbers)
            size = self.size(source)
            if size is None:
                return itertools.chain.from_iterable(self._done(Range(split, source).chunks()))
            ranges = (self._range(split, source, first) for first in range(0, size, SPAN))
            if not self._finished:
                return itertools.chain.from_iterable(self._done(ranges))
            work = functools.partial(self._workers.map, ahead=_AHEAD)
            corpus = (settings.vocabularies.digest, number)
            return itertools.chain.from_iterable(self._finished.encoded(corpus, ranges, work))

        return encoded

    def _range(self, split: str, source: PairSource, first: int) -> Range:
        files = {name: self._files[str(path)] for name, path in source.files.items()}
        places = {name: file.place(first) for name, file in files.items()}
        return Range(split, source, first, first + SPAN, places)

    def _done(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The workers' result of each task, in order."""
        return (returned for _, returned in self._workers.map(tasks, ahead=_AHEAD))


@contextlib.contextmanager
def spread_over(cluster: Cluster | None, config: DataConfig) -> Iterator[Spread | None]:
    """The cluster, with all corpora that it can read surveyed. Raises as `Spread` does."""
    if cluster is None:
        yield None
        return
    splits = [open_split(config, split) for split in ("train", "valid")]
    with cluster(functools.partial(_begun, operator.call, config)) as workers:
        yield Spread(workers, [source for opened in splits for _, _, source in opened], config)


def _begun(
    work: Callable[[Any], Any], config: DataConfig
) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    return _versions(config), work


def _versions(config: DataConfig) -> dict[str, Any]:
    """The versions that decide how text is encoded, besides the settings."""
    installed = package_versions()
    names = ["flaxformer-mt", "sentencepiece"]
    if config.filter.near_duplicates:
        names.append("rensa")
    if config.filter.language:
        names.append("py3langid")
    versions = {name: installed.get(name) for name in names}
    return versions | {"regex": regex.__version__, "Unicode": unicodedata.unidata_version}


def _survey_tasks(path: AnyPath, stamp: tuple[int, int]) -> Iterator[Callable[[], Any]]:
    """Digests a plain file, then counts the line ends of each `_COUNTED` bytes."""
    yield functools.partial(_digest, path, stamp)
    for start in _counted_starts(stamp):
        yield functools.partial(count_line_ends, path, stamp, start, start + _COUNTED)


def _counted_starts(stamp: tuple[int, int]) -> range:
    size, _ = stamp
    return range(0, size, _COUNTED)


def _digest(path: Any, stamp: tuple[int, int]) -> str:
    require_stamp(path, stamp)
    return sha256_of(path)


def _picked(part: Range, numbers: Sequence[int]) -> list[CorpusRecord]:
    """The records with these numbers, which lie in the part."""
    picked = {number - part.first for number in numbers}
    return [record for number, record in enumerate(part.records()) if number in picked]
