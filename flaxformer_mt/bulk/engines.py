"""A loaded model that takes windows: in this process, or on the machines of a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flaxformer_mt.bulk.loading import Loading
from flaxformer_mt.bulk.stream import Made, Window
from flaxformer_mt.cluster import Engine, Ray, workers


@dataclasses.dataclass(frozen=True)
class OpenEngine:
    """A loaded model, here or on a cluster."""

    identity: Mapping[str, Any]  # see `Loading`
    work: Callable[[Iterable[Window]], Iterable[tuple[Window, Made]]]
    clock: Callable[[], float]  # seconds, without those of compiling here
    compile_seconds: Callable[[], float | None]  # so far; None: other machines compile


@contextlib.contextmanager
def opened_engine(
    engine: Engine, loading: Loading, say: Callable[[str], None]
) -> Iterator[OpenEngine]:
    """Loads the model. Raises what `loading` raises, and for Ray NoRay and ClusterError."""
    if isinstance(engine, Ray):
        with workers(loading, address=engine.address, chips=engine.chips, say=say) as cluster:
            yield OpenEngine(cluster.told, cluster.map, time.monotonic, lambda: None)
        return

    from flaxformer_mt.parallel.compile_cache import watch_compilations, working_time

    identity, make = loading()
    compiled = watch_compilations()
    before = compiled.seconds
    yield OpenEngine(
        identity,
        functools.partial(map, lambda window: (window, make(window))),
        working_time,
        lambda: compiled.seconds - before,
    )
