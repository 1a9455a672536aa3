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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from flaxformer_mt.cluster import Begin, workers
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
    line_count: int | None = None,
) -> Iterator[Sink]:
    """Opens the file that `--output` names or, of an input of `line_count` lines, the shards with
    these names and ends. Raises OutputError."""
    path: str | None = options.output
    if path is None:
        yield StreamSink(sys.stdout.buffer)
        return
    if not path:
        raise OutputError("--output is empty: name a file, or leave it out for standard output")
    if not shards and _is_device(path):
        with contextlib.closing(StreamSink(None, path)) as device:
            yield device
        return

    destination = _Destination(path, shards, line_count, options.restart)
    destination.check_inputs(inputs)
    with contextlib.closing(destination.sink()) as sink:
        yield sink


def _is_device(path: str) -> bool:
    """Whether something exists there that isn't a file. Raises OutputError for a folder."""
    if "://" in path or not os.path.exists(path) or os.path.isfile(path):
        return False
    if os.path.isdir(path):
        raise OutputError(f"{path}: is a folder; --output must be a file")
    return True


@dataclasses.dataclass(frozen=True)
class _Destination:
    """A file that a later call can continue, or several shards instead of it."""

    path: str  # --output
    shards: Mapping[str, Ends]  # by name; empty: the file itself
    line_count: int | None  # of the whole input, for shards
    restart: bool

    @property
    def names(self) -> list[str]:
        """The files that it becomes."""
        return [*self.shards] or [self.path]

    @property
    def record(self) -> str:
        """Where several shards record which of them are finished."""
        return f"{self.path}.shards.json"

    def check_inputs(self, inputs: Sequence[str | None]) -> None:
        """Raises OutputError if a file that will be written is one of the inputs."""
        for name in self.names:
            for path in (name, f"{name}.part", f"{name}.part.json"):
                if any(source is not None and _same(source, path) for source in inputs):
                    raise OutputError(f"{path}: is also the input; choose another --output")

    def sink(self) -> Sink:
        """Where the output goes; whoever calls this closes it."""
        names = self.names
        if len(names) == 1:
            return self._file_sink(names[0])
        return ShardedSink(
            self.record,
            [stop for _, (stop, _) in self.shards.values()],
            lambda number: self._file_sink(names[number]),
            restart=self.restart,
            check=self._check_finished,
        )

    def _file_sink(self, name: str) -> Sink:
        kind = BucketSink if "://" in name else FileSink
        return kind(name, restart=self.restart, ends=self.shards.get(name), whole=self.line_count)

    def _check_finished(self, number: int) -> None:
        """Raises OutputError if a shard recorded as finished is missing or has changed."""
        name = self.names[number]
        finished = paths.as_path(name)
        if not paths.exists(finished):
            raise OutputError(
                f"{finished}: is missing, but {self.record} says that it is finished; put it back, "
                "or start over with --restart"
            )
        with paths.document(record_of(name), "make the shard again") as document:
            record = ShardRecord.read(document)
        check_shard(name, record)


def _same(name: str, other: str) -> bool:
    if "://" in name:
        return name == other
    return os.path.isfile(name) and os.path.exists(other) and os.path.samefile(name, other)


def identity(translator: fm.Translator, **settings: Any) -> dict[str, Any]:
    """Everything except the input that decides the output: another command must not resume it.

    Leaves out the size of batches: a call that ran out of memory may be resumed with smaller ones.
    """
    from flaxformer_mt.rundir.digests import tree_digest

    decoding = dataclasses.asdict(translator.config)
    del decoding["batch_tokens"]
    flat: dict[str, Any] = {}
    for name, value in {"decoding": decoding, **settings}.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": setting for key, setting in value.items()}
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
    """Passes all lines through the run's model; returns the exit status."""
    inputs = [options.input, getattr(options, "src", None), getattr(options, "tgt", None)]
    if options.engine == "local" and (options.ray_address or options.ray_chips):
        parser.error("--ray-address and --ray-chips need --engine ray")
    share = _share(options, parser, inputs)
    if options.join:
        return _joined(options)

    try:
        with contextlib.ExitStack() as stack:
            if options.output is not None:  # only then can the same command resume
                stack.enter_context(sigterm_stops())
            source = stack.enter_context(_opened_source(options, reading, share))
            sink = stack.enter_context(writing(options, inputs, source.shards, source.line_count))
            window = options.window or (1 if source.is_typed else WINDOW)
            begin = functools.partial(_begun, options, settings, window)
            engine = stack.enter_context(_engine(options, begin))
            meter = _meter(what, source, engine)
            if source.is_typed:
                source.ask()
            stack.enter_context(_told(sink, meter))
            sums = stream(
                source.lines,
                sink,
                engine.work,
                identity=engine.identity,
                window=window,
                meter=meter,
            )
    except Stopped:
        return STOPPED

    for line in settings.describe(sums):
        say(line)
    if not source.is_typed:
        say(f"{meter.describe()}; {engine.describe_time(meter.seconds)}")
    return 0


@dataclasses.dataclass(frozen=True)
class _Share:
    """The shards that a call writes: these numbers, of `count`."""

    numbers: range
    count: int


def _share(
    options: Namespace, parser: ArgumentParser, inputs: Sequence[str | None]
) -> _Share | None:
    """The shards that `--shard` or `--output-shards` asks for, if either is given."""
    share = None
    if options.shard:
        share = _one_shard(options, parser)
    elif options.output_shards:
        share = _Share(range(options.output_shards), options.output_shards)

    flags_given = sum(map(bool, (options.shard, options.join, options.output_shards)))
    if flags_given and options.output is None:
        parser.error("--shard, --output-shards and --join need --output")
    if flags_given > 1:
        parser.error("give only one of --shard (one part), --output-shards (all), --join")
    if share is not None:
        _check_rereadable(options, parser, inputs)
    return share


def _one_shard(options: Namespace, parser: ArgumentParser) -> _Share:
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", options.shard)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not index < count <= LARGEST_SHARDS:
        parser.error(
            f"--shard {options.shard}: must be I/N with I from 0 to N-1, such as 0/16, and at most "
            f"{LARGEST_SHARDS:,} parts"
        )
    return _Share(range(index, index + 1), count)


def _check_rereadable(
    options: Namespace, parser: ArgumentParser, inputs: Sequence[str | None]
) -> None:
    """Shards need the number of lines first, so the input is read twice."""
    flag = "--shard" if options.shard else "--output-shards"
    if not any(inputs):
        parser.error(f"{flag} reads the input twice: name a file instead of standard input")
    for name in inputs:
        if name and os.path.exists(name) and not os.path.isfile(name):
            parser.error(f"{flag} reads the input twice: name a file instead of {name}")


def _shard_name(output: str, index: int, count: int) -> str:
    return f"{output}.shard-{index:0{len(str(count - 1))}}-of-{count}"


@dataclasses.dataclass(frozen=True)
class _Source:
    """The lines that a call reads and, if it writes shards, their names and ends."""

    lines: Lines | TwoInputs | Shard
    shards: Mapping[str, Ends]
    line_count: int | None  # of the whole input, for shards
    is_typed: bool  # by a person, who sees each translation

    def ask(self) -> None:
        """Prompts the person who types."""
        if isinstance(self.lines, Lines):
            self.lines.prompt = "> "
        say("type a sentence and press Enter; Ctrl-D quits")


@contextlib.contextmanager
def _opened_source(
    options: Namespace,
    reading: Callable[[], contextlib.AbstractContextManager[Lines | TwoInputs]],
    share: _Share | None,
) -> Iterator[_Source]:
    if share is None:
        with reading() as lines:
            is_typed = isinstance(lines, Lines) and lines.interactive
            yield _Source(lines, shards={}, line_count=None, is_typed=is_typed)
        return

    with reading() as lines:
        boundaries = shard_ends(lines, share.count, window=options.window or WINDOW)
    shards: dict[str, Ends] = {}
    for number in share.numbers:
        name = _shard_name(options.output, number, share.count)
        shards[name] = boundaries[number][0], boundaries[number + 1][0]

    (start, _), bytes_before = boundaries[share.numbers.start]
    (stop, _), bytes_through = boundaries[share.numbers.stop]
    if options.shard and start == stop:
        say(f"--shard {options.shard}: nothing to do; lower --window for more parts")
    (line_count, _), _ = boundaries[-1]
    with reading() as lines:
        part = Shard(lines, start, stop, bytes_through - bytes_before)
        yield _Source(part, shards, line_count, is_typed=False)


@dataclasses.dataclass(frozen=True)
class _Engine:
    """A loaded model, here or on a cluster."""

    identity: Mapping[str, Any]  # see `_begun`
    work: Callable[[Iterable[Window]], Iterable[tuple[Window, Made]]]
    clock: Callable[[], float]
    compiles_here: bool

    def describe_time(self, seconds: float) -> str:
        """How long the work took, and with which weights."""
        from flaxformer_mt.parallel.compile_cache import watch_compilations

        weights = f"with the weights '{self.identity['weights']}'"
        if not self.compiles_here:
            return f"{seconds:.1f} s, {weights}"
        return f"{seconds:.1f} s, plus {watch_compilations().seconds:.1f} s compiling, {weights}"


@contextlib.contextmanager
def _engine(options: Namespace, begin: Begin) -> Iterator[_Engine]:
    from flaxformer_mt.parallel.compile_cache import working_time

    if options.engine == "ray":
        with workers(
            begin, address=options.ray_address, chips=options.ray_chips, say=say
        ) as cluster:
            yield _Engine(cluster.told, cluster.map, time.monotonic, compiles_here=False)
    else:
        identity, make = begin()
        work = functools.partial(map, lambda window: (window, make(window)))
        yield _Engine(identity, work, working_time, compiles_here=True)


def _meter(what: str, source: _Source, engine: _Engine) -> Meter:
    if source.is_typed:
        # A person sees each translation: no progress report needed.
        return Meter(what, say, share=source.lines.share, every=math.inf)
    terminal = sys.stderr.isatty()
    return Meter(what, say, share=source.lines.share, terminal=terminal, clock=engine.clock)


def _begun(
    options: Namespace, settings: TranslateSettings | ScoreSettings, window: int
) -> tuple[dict[str, Any], Callable[[Window], Made]]:
    """Loads the model; returns everything that decides the output, and a function of a window.

    Runs in a cluster's workers as well as here.
    """
    if options.engine == "ray":  # a worker's process has not passed through `main`
        from flaxformer_mt.parallel.compile_cache import keep_compiled
        from flaxformer_mt.rundir.cache import cache_folder

        keep_compiled(cache_folder() / "xla")

    translator = _loaded(options)
    beam_size = translator.config.beam_size
    n_best = getattr(options, "n_best", 1)
    if n_best > beam_size:
        raise ConfigError(f"--n-best {n_best} must lie between 1 and the beam size, {beam_size}")
    if isinstance(settings, TranslateSettings):
        settings.check(translator)

    make = functools.partial(settings.make, translator=translator)
    # Standard output can't be resumed, so nothing is compared later.
    if options.output is None and options.engine == "local":
        return {"weights": translator.name}, make
    return identity(translator, window=window, **settings.identity()), make


def _loaded(options: Namespace) -> fm.Translator:
    """The run's model, with those of `--ensemble` and the settings of the command."""
    folders = (options.workdir, *getattr(options, "ensemble", ()))
    translator = fm.Translator.load_ensemble(
        [str(paths.as_path(folder)) for folder in folders],
        which=options.weights,
        shortlist=getattr(options, "shortlist", False),  # `score` has none
    )
    return as_asked(options, translator)


def _joined(options: Namespace) -> int:
    """Writes FILE from its shards, each of which must be what its record describes."""
    count = options.join
    shards = [_shard_name(options.output, index, count) for index in range(count)]
    records = _records_of(shards)
    identity = _common_identity(shards, records)
    unproven = sum(record.output is None for record in records)
    if unproven:
        say(
            f"{options.output}: {unproven} of {count} shards were made by an earlier "
            "version, which didn't record their size and digest: these are not checked"
        )
    for shard, record in zip(shards, records, strict=True):
        check_shard(shard, record)  # all of them, before anything is written

    with writing(options, shards) as sink:
        consumed = sink.begin({**identity, "join": count})
        if consumed.lines and consumed.sha256 not in ("", _digest_of(records[: consumed.lines])):
            raise OutputError(
                f"{options.output}: its first {consumed.lines} shards were made again since they "
                "were joined; start over with --restart"
            )
        for number in range(consumed.lines, count):
            for chunk in shard_content(shards[number], records[number]):
                sink.write(chunk)
            joined = number + 1
            sink.commit(Consumed(lines=joined, sha256=_digest_of(records[:joined])))
        sink.finish()
    say(f"{options.output}: joined from {count} shards")
    return 0


def _records_of(shards: Sequence[str]) -> list[ShardRecord]:
    """Raises OutputError unless all shards and their records exist."""
    files = [*map(paths.as_path, shards), *map(record_of, shards)]
    missing = [path for path in files if not paths.exists(path)]
    if missing:
        raise OutputError(
            f"{missing[0]}: missing ({len(missing)} of {len(files)} files): "
            "--join needs all shards and records"
        )

    records = []
    for shard in shards:
        with paths.document(record_of(shard), "make the shard again") as document:
            records.append(ShardRecord.read(document))
    return records


def _common_identity(shards: Sequence[str], records: Sequence[ShardRecord]) -> dict[str, Any]:
    """The identity of the shards' common output.

    Raises OutputError unless each shard begins where the one before ends, and the last ends with
    the input.
    """
    advice = "make both from the same input with the same settings"
    expected: dict[str, Any] = {}  # of the next shard
    for number, (shard, record) in enumerate(zip(shards, records, strict=True)):
        identity = {**record.identity, "shards": None, "start": record.start}
        expected = expected or {**identity, "start": [0, ""]}
        if name := difference(expected, identity):
            raise OutputError(
                f"{shard}: has {name} {identity.get(name)!r}, but "
                + (f"after {shards[number - 1]}" if number else "as the first shard")
                + f" it must be {expected.get(name)!r}: {advice}"
            )
        expected = {**identity, "start": record.stop}

    stop = records[-1].stop[0]
    for shard, record in zip(shards, records, strict=True):
        if record.whole not in (None, stop):
            raise OutputError(
                f"{shard}: is of an input of {record.whole:,} lines, but {shards[-1]} ends after "
                f"{stop:,}: {advice}"
            )
    return expected


def _digest_of(records: Sequence[ShardRecord]) -> str:
    """The digest of the shards' content; empty if an earlier version made one of them."""
    if any(record.output is None for record in records):
        return ""
    listed = "".join(f"{record.output['sha256']}\n" for record in records if record.output)
    return hashlib.sha256(listed.encode()).hexdigest()


@contextlib.contextmanager
def _told(sink: Sink, meter: Meter) -> Iterator[None]:
    """Says how to go on if the work within ends early, and closes the meter."""
    try:
        yield
    except BaseException as error:
        advice = f"; the same command resumes {sink.kept}" if sink.kept else ""
        if isinstance(error, Stopped):
            meter.say(f"SIGTERM received{advice}")
        elif sink.kept:
            meter.say(f"not finished{advice}")
        raise
    finally:
        meter.close()
