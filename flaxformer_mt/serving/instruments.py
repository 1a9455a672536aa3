"""Counters and histograms, and the text in which Prometheus reads them (format 0.0.4)."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

Labels = Mapping[str, str]


class Counter:
    """A number that only grows, for each combination of labels."""

    def __init__(self, name: str, help: str, *, labels: Sequence[str] = ()) -> None:
        self.name, self.help, self.labels = name, help, tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, amount: float = 1, **labels: str) -> None:
        key = tuple(labels[name] for name in self.labels)
        self._values[key] = self._values.get(key, 0.0) + amount

    def value(self, **labels: str) -> float:
        return self._values.get(tuple(labels[name] for name in self.labels), 0.0)

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help, "counter")
        for key, value in self._values.items():
            yield f"{self.name}{_labels(dict(zip(self.labels, key, strict=True)))} {_number(value)}"


class Gauge:
    """A number that is looked up when it is asked for."""

    def __init__(
        self, name: str, help: str, read: Callable[[], float], labels: Labels | None = None
    ) -> None:
        self.name, self.help, self._read, self._labels = name, help, read, labels or {}

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help, "gauge")
        yield f"{self.name}{_labels(self._labels)} {_number(self._read())}"


class Histogram:
    """How many observations were at most as large as each bound, and their sum."""

    def __init__(
        self, name: str, help: str, *, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self.name, self.help, self.labels, self.bounds = name, help, tuple(labels), tuple(bounds)
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, **labels: str) -> None:
        key = tuple(labels[name] for name in self.labels)
        counts = self._counts.setdefault(key, [0] * (len(self.bounds) + 1))
        counts[bisect.bisect_left(self.bounds, value)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + value

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help, "histogram")
        for key, counts in self._counts.items():
            labels = dict(zip(self.labels, key, strict=True))
            bounds = [*map(_number, self.bounds), "+Inf"]
            for bound, count in zip(bounds, itertools.accumulate(counts), strict=True):
                yield f"{self.name}_bucket{_labels(labels | {'le': bound})} {count}"
            yield f"{self.name}_sum{_labels(labels)} {_number(self._sums[key])}"
            yield f"{self.name}_count{_labels(labels)} {sum(counts)}"


def _head(name: str, help: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
