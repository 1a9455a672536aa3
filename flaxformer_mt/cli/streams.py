"""Shared by commands that turn lines into lines: input, output and stopping."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import re
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.bulk.reading import Lines, Shard, TwoInputs
from flaxformer_mt.bulk.sinks import (
    BucketSink,
    Consumed,
    Ends,
    FileSink,
    OutputError,
    ShardedSink,
    ShardRecord,
    Sink,
    StreamSink,
    check_shard,
    difference,
    record_of,
    shard_content,
)
from flaxformer_mt.bulk.stream import (
    WINDOW,
    Made,
    ScoreSettings,
    TranslateSettings,
    Window,
    shard_ends,
    stream,
)
from flaxformer_mt.cli.arguments import LARGEST_SHARDS, as_asked
from flaxformer_mt.cluster import workers
from flaxformer_mt.config import ConfigError
from flaxformer_mt.errors import STOPPED
from flaxformer_mt.progress import Meter
from flaxformer_mt.rundir import paths


class Stopped(BaseException):
    """SIGTERM came; the same command can resume."""


OUTPUT = {
    "--output FILE": "output, local or gs://, written as FILE.part until complete; after an "
    "interruption the same command resumes it (default: standard output)",
    "--shard I/N": "process only part I of N (I from 0 to N-1) into FILE.shard-I-of-N, to share "
    "work between machines or array tasks",
    "--output-shards N:shards": "write all N shards of an input file instead of FILE",
    "--join N:shards": "write FILE from its N finished shards",
    "--restart": "start over, discarding earlier output",
    "--engine local|ray": "ray: share the work among the machines of a Ray cluster, each with "
    "its own copy of the model; the output is the same (extra `ray`)",
    "--ray-address HOST:PORT": "the Ray cluster (default: RAY_ADDRESS, else this machine's own)",
    "--ray-chips N:int": "TPU or GPU chips (or CPUs) per worker (default: all of a machine's)",
    "--window N:int": f"lines to read before writing any (default: {WINDOW}; 1 at a terminal). A "
    "larger window batches better; a smaller one loses less to an interruption",
}


@contextlib.contextmanager
def writing(
    options: Namespace,
    inputs: Sequence[str | None],
    shards: Mapping[str, Ends] = {},
    whole: int | None = None,
) -> Iterator[Sink]:
    """Where `--output` leads, or the shards with these names and ends, of an input of `whole`
    lines. Raises OutputError."""
    path: str | None = options.output
    if path is None:
        yield StreamSink(sys.stdout.buffer)
        return
    if not path:
        raise OutputError("--output is empty: name a file, or leave it out for standard output")
    if not shards and "://" not in path and os.path.exists(path) and not os.path.isfile(path):
        if os.path.isdir(path):
            raise OutputError(f"{path}: is a folder; --output must be a file")
        with contextlib.closing(StreamSink(None, path)) as device:
            yield device
        return
    names = [*shards] or [path]
    for kept in (f"{name}{part}" for name in names for part in ("", ".part", ".part.json")):
        if any(name is not None and _same(name, kept) for name in inputs):
            raise OutputError(f"{kept}: is also the input; choose another --output")

    def opened(name: str) -> Sink:
        kind = BucketSink if "://" in name else FileSink
        return kind(name, restart=options.restart, ends=shards.get(name), whole=whole)

    def check(number: int) -> None:
        finished = paths.as_path(names[number])
        if not paths.exists(finished):
            raise OutputError(
                f"{finished}: is missing, but {record} says that it is finished; put it back, or "
                "start over with --restart"
            )
        with paths.document(record_of(names[number]), "make the shard again") as found:
            described = ShardRecord.read(found)
        check_shard(names[number], described)

    if len(names) > 1:
        record = f"{path}.shards.json"
        stops = [stop for _, (stop, _) in shards.values()]
        sink: Sink = ShardedSink(
            record,
            stops,
            lambda number: opened(names[number]),
            restart=options.restart,
            check=check,
        )
    else:
        sink = opened(names[0])
    with contextlib.closing(sink):
        yield sink


def _same(name: str, other: str) -> bool:
    if "://" in name:
        return name == other
    return os.path.isfile(name) and os.path.exists(other) and os.path.samefile(name, other)


def identity(translator: fm.Translator, **settings: Any) -> dict[str, Any]:
    """What decides the output, except the input: a different command must not resume it.

    Not the size of batches: what has run out of memory may go on with smaller ones.
    """
    from flaxformer_mt.rundir.digests import tree_digest

    decoding = dataclasses.asdict(translator.config)
    del decoding["batch_tokens"]
    flat: dict[str, Any] = {}
    for name, value in {"decoding": decoding, **settings}.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flat[name] = value
    digests = tree_digest([params for params, _ in translator.members])
    listed = "".join(f"{path} {digest}\n" for path, digest in sorted(digests.items()))
    return {
        "program": f"flaxformer_mt {fm.__version__}",
        "weights": translator.name,
        "parameters": hashlib.sha256(listed.encode()).hexdigest()[:16],
        "vocabulary": translator.vocabularies.digest[:16],
        "shortlist": translator.shortlist and translator.shortlist.digest,
        "dtype": ", ".join(model.config.dtype for _, model in translator.members),
        **flat,
    }


@contextlib.contextmanager
def sigterm_stops() -> Iterator[None]:
    """The first SIGTERM within raises Stopped; a second one acts as usual."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, previous)
        raise Stopped

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def streamed(
    options: Namespace,
    parser: ArgumentParser,
    *,
    what: str,
    reading: Callable[[], contextlib.AbstractContextManager[Lines | TwoInputs]],
    settings: TranslateSettings | ScoreSettings,
) -> int:
    """All lines through the run's model; returns the exit status."""
    from flaxformer_mt.parallel.compile_cache import watch_compilations, working_time

    if options.engine == "local" and (options.ray_address or options.ray_chips):
        parser.error("--ray-address and --ray-chips need --engine ray")
    named = [options.input, getattr(options, "src", None), getattr(options, "tgt", None)]
    asked = [options.shard, options.join, options.output_shards]
    index, count = _shard(options, parser) if options.shard else (0, options.output_shards)
    if any(asked):
        if options.output is None:
            parser.error("--shard, --output-shards and --join need --output")
        if sum(map(bool, asked)) > 1:
            parser.error("give only one of --shard (one part), --output-shards (all), --join")
        if options.join:
            return _joined(options)
        places = [name for name in named if name and os.path.exists(name)]
        once = [name for name in places if not os.path.isfile(name)]
        if once or not any(named):
            flag = "--shard" if options.shard else "--output-shards"
            what = once[0] if once else "standard input"
            parser.error(f"{flag} reads the input twice: name a file instead of {what}")
    try:
        with contextlib.ExitStack() as stack:
            if options.output is not None:  # which a second call can continue
                stack.enter_context(sigterm_stops())
            lines: Lines | TwoInputs | Shard
            shards: dict[str, Ends] = {}
            all_lines: int | None = None
            if count:
                with reading() as whole:
                    parts = shard_ends(whole, count, window=options.window or WINDOW)
                all_lines = parts[count][0][0]
                last = index + 1 if options.shard else count
                for number in range(index, last):
                    name = _shard_name(options.output, number, count)
                    shards[name] = parts[number][0], parts[number + 1][0]
                ((start, _), before), ((stop, _), size) = parts[index], parts[last]
                if options.shard and start == stop:
                    say(f"--shard {options.shard}: nothing to do; lower --window for more parts")
                lines = Shard(stack.enter_context(reading()), start, stop, size - before)
            else:
                lines = stack.enter_context(reading())
            sink = stack.enter_context(writing(options, named, shards, all_lines))
            typed = lines if isinstance(lines, Lines) and lines.interactive else None
            window = options.window or (1 if typed else WINDOW)
            begin = functools.partial(_begun, options, settings, window)
            clock: Callable[[], float] = working_time
            if options.engine == "ray":
                found = stack.enter_context(
                    workers(begin, address=options.ray_address, chips=options.ray_chips, say=say)
                )
                told = found.told
                work = found.map
                clock = time.monotonic
            else:
                told, make = begin()
                work = functools.partial(map, lambda window: (window, make(window)))
            terminal = sys.stderr.isatty()
            meter = Meter(what, say, share=lines.share, terminal=terminal, clock=clock)
            if typed:
                # A person sees each translation: no progress report needed.
                meter = Meter(what, say, share=lines.share, every=math.inf)
                typed.prompt = "> "
                say("type a sentence and press Enter; Ctrl-D quits")
            stack.enter_context(_told(sink, meter))
            sums = stream(lines, sink, work, identity=told, window=window, meter=meter)
    except Stopped:
        return STOPPED
    for line in settings.describe(sums):
        say(line)
    if typed:
        return 0
    took = f"{meter.seconds:.1f} s"
    if options.engine == "local":
        took += f", plus {watch_compilations().seconds:.1f} s compiling"
    say(f"{meter.describe()}; {took}, with the weights '{told['weights']}'")
    return 0


def _begun(
    options: Namespace, settings: TranslateSettings | ScoreSettings, window: int
) -> tuple[dict[str, Any], Callable[[Window], Made]]:
    """The model as asked for: what decides of the output, and what makes it of a window.

    In a worker of a cluster as well as here.
    """
    if options.engine == "ray":  # a worker's process has not passed through `main`
        from flaxformer_mt.parallel.compile_cache import keep_compiled
        from flaxformer_mt.rundir.cache import cache_folder

        keep_compiled(cache_folder() / "xla")
    runs = [str(paths.as_path(run)) for run in (options.workdir, *getattr(options, "ensemble", ()))]
    short = getattr(options, "shortlist", False)  # `score` has none
    translator = as_asked(
        options, fm.Translator.load_ensemble(runs, which=options.weights, shortlist=short)
    )
    beam_size = translator.config.beam_size
    n_best = getattr(options, "n_best", 1)
    if n_best > beam_size:
        raise ConfigError(f"--n-best {n_best} must lie between 1 and the beam size, {beam_size}")
    if isinstance(settings, TranslateSettings):
        settings.check(translator)
    make = functools.partial(settings.make, translator=translator)
    # Nobody asks later about what goes to standard output.
    if options.output is None and options.engine == "local":
        return {"weights": translator.name}, make
    return identity(translator, window=window, **settings.identity()), make


def _shard(options: Namespace, parser: ArgumentParser) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", options.shard)
    index, count = map(int, found.groups()) if found else (0, 0)
    if not index < count <= LARGEST_SHARDS:
        parser.error(
            f"--shard {options.shard}: must be I/N with I from 0 to N-1, such as 0/16, and at most "
            f"{LARGEST_SHARDS:,} parts"
        )
    return index, count


def _shard_name(output: str, index: int, count: int) -> str:
    return f"{output}.shard-{index:0{len(str(count - 1))}}-of-{count}"


def _joined(options: Namespace) -> int:
    """Writes FILE from its shards, each of which must be what its record describes."""
    shards = [_shard_name(options.output, index, options.join) for index in range(options.join)]
    needed = [*map(paths.as_path, shards), *map(record_of, shards)]
    if missing := [path for path in needed if not paths.exists(path)]:
        count = f"{len(missing)} of {len(needed)} files"
        raise OutputError(f"{missing[0]}: missing ({count}): --join needs all shards and records")
    records = []
    for shard in shards:
        with paths.document(record_of(shard), "make the shard again") as record:
            records.append(ShardRecord.read(record))
    due = _one_after_another(shards, records)
    if unproven := sum(record.output is None for record in records):
        say(
            f"{options.output}: {unproven} of {options.join} shards were made by an earlier "
            "version, which didn't record their size and digest: these are not checked"
        )
    for shard, record in zip(shards, records, strict=True):
        check_shard(shard, record)  # all of them, before anything is written
    with writing(options, shards) as sink:
        before = sink.begin({**due, "join": options.join})
        if before.lines and before.sha256 not in ("", _digest_of(records[: before.lines])):
            raise OutputError(
                f"{options.output}: its first {before.lines} shards were made again since they "
                "were joined; start over with --restart"
            )
        for number in range(before.lines, options.join):
            for data in shard_content(shards[number], records[number]):
                sink.write(data)
            done = records[: number + 1]
            sink.commit(Consumed(lines=len(done), sha256=_digest_of(done)))
        sink.finish()
    say(f"{options.output}: joined from {options.join} shards")
    return 0


def _one_after_another(shards: Sequence[str], records: Sequence[ShardRecord]) -> dict[str, Any]:
    """What the shards of one input have in common. Raises OutputError unless each begins where the
    one before ends, and the last ends with the input."""
    advice = "make both from the same input with the same settings"
    due: dict[str, Any] = {}  # what the next shard must have
    for number, (shard, record) in enumerate(zip(shards, records, strict=True)):
        found = {**record.identity, "shards": None, "start": record.start}
        before = f"after {shards[number - 1]}" if due else "as the first shard"
        due = due or {**found, "start": [0, ""]}
        if name := difference(due, found):
            has = f"has {name} {found.get(name)!r}, but {before} it must be {due.get(name)!r}"
            raise OutputError(f"{shard}: {has}: {advice}")
        due = {**found, "start": record.stop}
    stop = records[-1].stop[0]
    for shard, record in zip(shards, records, strict=True):
        if record.whole not in (None, stop):
            ends = f"is of an input of {record.whole:,} lines, but {shards[-1]} ends after {stop:,}"
            raise OutputError(f"{shard}: {ends}: {advice}")
    return due


def _digest_of(records: Sequence[ShardRecord]) -> str:
    """Of the content of shards; empty if an earlier version made one."""
    if any(record.output is None for record in records):
        return ""
    listed = "".join(f"{record.output['sha256']}\n" for record in records if record.output)
    return hashlib.sha256(listed.encode()).hexdigest()


@contextlib.contextmanager
def _told(sink: Sink, meter: Meter) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        left = f"; the same command resumes {sink.kept}" if sink.kept else ""
        if isinstance(error, Stopped):
            meter.say(f"SIGTERM received{left}")
        elif sink.kept:
            meter.say(f"not finished{left}")
        raise
    finally:
        meter.close()
