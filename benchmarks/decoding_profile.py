"""The time that a search on a CPU spends in matrix products, in the cache, and elsewhere.

python -m benchmarks.decoding_profile

One call of `decoding_speed`'s model and sentences, beam 4, by XLA's own trace, in both dtypes. The
seconds are the operations', summed over the threads that run them side by side.
"""

import argparse
import collections
import functools
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
from jax.profiler import ProfileData

from benchmarks import RESULTS
from benchmarks.decoding_contestants import ours
from benchmarks.decoding_speed import Work
from flaxformer_mt.reproduction.result_file import write_result

BEAM, BATCH = 4, 64
DTYPES: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
# XLA's CPU backend gives products, with operations fused into them, to YNN or to Eigen.
KINDS = {
    "products": re.compile(r"ynn|dot"),
    "cache": re.compile(r"dynamic-update-slice"),
}
# These contain others, which have a line each.
CONTAINERS = re.compile(r"while|call|conditional")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding_profile")
    parser.add_argument("--output", type=Path, default=RESULTS / "decoding_profile.json")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    metrics: dict[str, float] = {}
    for dtype in DTYPES:
        decode = ours(dtype, Work())
        decode(BEAM, BATCH)  # compiles
        began = time.perf_counter()
        tokens = decode(BEAM, BATCH)
        metrics[f"{dtype}_tokens_per_second"] = tokens / (time.perf_counter() - began)
        seconds = traced(functools.partial(decode, BEAM, BATCH))
        total = sum(seconds.values())
        for kind, spent in by_kind(seconds).items():
            metrics[f"{dtype}_{kind}_seconds"] = spent
        metrics[f"{dtype}_products_share"] = metrics[f"{dtype}_products_seconds"] / total
    write_result(
        options.output,
        command="python -m benchmarks.decoding_profile",
        config="base, vocabulary 32,000, random weights",
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures={},
    )
    print(json.dumps(metrics, indent=2))
    return 0


def traced(run: Callable[[], object]) -> collections.Counter[str]:
    """Seconds of each operation that `run` computes, by its name without its number."""
    seconds: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        (file,) = Path(folder).rglob("*.xplane.pb")
        for event in events(file):
            if "hlo_op" in dict(event.stats) and not event.name.startswith("end:"):
                name = re.sub(r"[.\d]+$", "", event.name)
                if not CONTAINERS.fullmatch(name):
                    seconds[name] += event.duration_ns / 1e9
    return seconds


def events(trace: Path) -> Iterator[Any]:
    for plane in ProfileData.from_file(str(trace)).planes:
        for line in plane.lines:
            yield from line.events


def by_kind(seconds: collections.Counter[str]) -> dict[str, float]:
    """The same in KINDS, and the rest as "other"."""
    sums = dict.fromkeys([*KINDS, "other"], 0.0)
    for name, spent in seconds.items():
        kind = next((kind for kind, names in KINDS.items() if names.search(name)), "other")
        sums[kind] += spent
    return sums


if __name__ == "__main__":
    sys.exit(main())
