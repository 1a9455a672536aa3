"""What commands that turn lines into lines have in common: input, output, being stopped."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, BinaryIO, cast

import flaxformer_mt
from flaxformer_mt.bulk.bucket_sink import BucketSink
from flaxformer_mt.bulk.reading import Lines
from flaxformer_mt.bulk.scoring import TwoInputs
from flaxformer_mt.bulk.sinks import FileSink, Sink, StreamSink
from flaxformer_mt.bulk.state import OutputError
from flaxformer_mt.bulk.stream import WINDOW, Action, stream
from flaxformer_mt.cli.arguments import positive, say
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.progress import Meter
from flaxformer_mt.rundir.digests import tree_digest

NOT_FINISHED = 75  # as `train` says that the same command goes on


class Stopped(BaseException):
    """SIGTERM came, and the same command can go on."""


def add_output(parser: argparse.ArgumentParser, window: int) -> None:
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="written as FILE.part until it is complete; called again after an interruption, the "
        "same command goes on with that; gs:// too (default: standard output)",
    )
    parser.add_argument(
        "--restart", action="store_true", help="begin anew, whatever an earlier call has left"
    )
    parser.add_argument(
        "--window",
        type=positive,
        metavar="N",
        help=f"lines read before any is written (default: {window}; 1 at a terminal). More of them "
        "share batches; fewer are lost to an interruption",
    )


@contextlib.contextmanager
def writing(options: argparse.Namespace, inputs: tuple[str | None, ...]) -> Iterator[Sink]:
    """Where `--output` leads. Raises OutputError for a folder, "" and one of the inputs."""
    path: str | None = options.output
    if path is None:
        yield StreamSink(sys.stdout.buffer)
        return
    if not path:
        raise OutputError("--output is empty: name a file, or leave it out for standard output")
    for kept in (path, f"{path}.part", f"{path}.part.json"):
        if any(name is not None and _same(name, kept) for name in inputs):
            raise OutputError(f"{kept}: is the input as well; --output names another file")
    if "://" in path:
        sink: Sink = BucketSink(path, restart=options.restart)
    elif os.path.isdir(path):
        raise OutputError(f"{path}: is a folder; --output names a file")
    elif os.path.exists(path) and not os.path.isfile(path):
        with _device(path) as device:
            yield StreamSink(device, path)
        return
    else:
        sink = FileSink(path, restart=options.restart)
    with contextlib.closing(sink):
        yield sink


def _same(name: str, other: str) -> bool:
    """Whether both are one file, or one object."""
    if "://" in name:
        return name == other
    return os.path.isfile(name) and os.path.exists(other) and os.path.samefile(name, other)


@contextlib.contextmanager
def _device(path: str) -> Iterator[BinaryIO]:
    """A pipe, /dev/null and the like. Raises OutputError if it cannot be opened."""
    try:
        device = cast(BinaryIO, open(path, "wb"))
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        yield device
    finally:
        with contextlib.suppress(OSError):  # said already, when it was written
            device.close()


def identity(translator: Translator, **settings: Any) -> dict[str, Any]:
    """What decides of the output, but for the input: another command must not go on with it.

    Settings within a mapping are named "its name.their name". The size of batches decides of
    rounding alone, and what has run out of memory must be able to go on with smaller ones.
    """
    decoding = dataclasses.asdict(translator.config)
    del decoding["batch_tokens"]
    flat: dict[str, Any] = {}
    for name, value in {"decoding": decoding, **settings}.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flat[name] = value
    digests = tree_digest([params for params, _ in translator.members])
    return {
        "program": f"flaxformer_mt {flaxformer_mt.__version__}",
        "weights": translator.name,
        "parameters": _digest(digests),
        "vocabulary": translator.vocabularies.digest[:16],
        "dtype": ", ".join(model.config.dtype for _, model in translator.members),
        **flat,
    }


@contextlib.contextmanager
def sigterm_stops(wanted: bool) -> Iterator[None]:
    """If `wanted`, the first SIGTERM within raises Stopped; a second one acts as usual."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, previous)
        raise Stopped

    if not wanted:
        yield
        return
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def streamed(
    options: argparse.Namespace,
    translator: Translator,
    lines: Lines | TwoInputs,
    sink: Sink,
    *,
    parse: Callable[..., Any],
    action: Action[Any],
    meter: Meter,
    settings: Mapping[str, Any],
) -> int:
    """All lines through `action`; returns the exit status. `settings` are part of the identity."""
    window = options.window or (1 if lines.interactive else WINDOW)
    # Of what goes to standard output nobody asks later.
    known = identity(translator, window=window, **settings) if options.output is not None else {}

    def work() -> None:
        stream(
            lines,
            sink,
            parse=parse,
            action=action,
            identity=known,
            window=window,
            meter=meter,
        )

    if not finished(work, sink, meter):
        return NOT_FINISHED
    for line in action.summary():
        say(line)
    say(f"{meter.describe()}; {meter.seconds:.1f} s with the weights '{translator.name}'")
    return 0


def finished(work: Callable[[], None], sink: Sink, meter: Meter) -> bool:
    """Does the work, and says what is left of it where it ends early: False if it was stopped."""
    try:
        work()
        return True
    except BaseException as error:
        meter.close()
        if isinstance(error, Stopped):
            say(f"SIGTERM received{_left(sink)}")
            return False
        if sink.kept:
            say(f"not finished{_left(sink)}")
        raise
    finally:
        meter.close()


def _left(sink: Sink) -> str:
    return f"; the same command goes on with {sink.kept}" if sink.kept else ""


def _digest(digests: Mapping[str, str]) -> str:
    text = "".join(f"{path} {digest}\n" for path, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
