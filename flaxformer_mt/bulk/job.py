"""A bulk job: lines through a model into an output that the same job resumes."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from flaxformer_mt.bulk.engines import OpenEngine, opened_engine
from flaxformer_mt.bulk.inputs import OpenInput, opened_input
from flaxformer_mt.bulk.loading import Loading, Task
from flaxformer_mt.bulk.outputs import Output, opened_sink
from flaxformer_mt.bulk.reading import Input, readable_once
from flaxformer_mt.bulk.shards import Share, ShareError
from flaxformer_mt.bulk.sinks import Sink
from flaxformer_mt.bulk.stream import WINDOW, stream
from flaxformer_mt.cluster import Engine, Local, Ray
from flaxformer_mt.config import ConfigError
from flaxformer_mt.errors import Stopped
from flaxformer_mt.progress import Meter, pace

if TYPE_CHECKING:
    from flaxformer_mt.decoding.translator import Translator

Say = Callable[[str], None]


class Described(Protocol):
    """Counts that can tell people about themselves."""

    def describe(self) -> list[str]:
        """Lines for people."""


Counts = TypeVar("Counts", bound=Described)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileReport(Generic[Counts]):
    """What a call has done: all but `counts` is without the part that earlier calls had done."""

    lines: int
    tokens: int  # of the translations, end marks included
    seconds: float  # without those of compiling
    compile_seconds: float | None  # None: other machines compiled
    weights: str
    counts: Counts  # of the whole output
    is_typed: bool = False  # a person has typed the lines, and has seen what became of each

    def describe(self) -> list[str]:
        """Lines for people."""
        if self.is_typed:
            return self.counts.describe()
        duration = f"{self.seconds:.1f} s"
        if self.compile_seconds is not None:
            duration += f", plus {self.compile_seconds:.1f} s compiling"
        speed = pace(self.lines, self.seconds, tokens=self.tokens)
        return [*self.counts.describe(), f"{speed}; {duration}, with the weights '{self.weights}'"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(Generic[Counts]):
    """Lines, what is done with them, and where that happens.

    `load` gives the model; with Ray it is sent to the workers, which call it. Raises ConfigError
    for parts that don't go together.
    """

    task: Task[Counts]
    load: Callable[[], Translator]
    input: Input
    output: Output
    share: Share | None = None  # of the input; None: all of it, into one file
    window: int | None = None  # lines to read before any is written; None: as fits the input
    engine: Engine = Local()

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ConfigError(f"window = {self.window} must be at least 1")
        if self.share is None:
            return
        if self.output.path is None:
            raise ShareError(self.share.argument, "needs an output file")
        name = readable_once(self.input)
        if name is not None:
            raise ShareError(
                self.share.argument, f"reads the input twice: name a file instead of {name}"
            )

    def run(self, say: Say) -> FileReport[Counts]:
        """Does the job, or continues it; `say` gets progress and remarks about lines.

        Raises CorpusError and InputError with file and line, OutputError, what `load` and the task
        raise, and ClusterError. Whatever ends it early, also Stopped and KeyboardInterrupt, leaves
        output that the same job continues.
        """
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(self._opened_input(say))
            sink = stack.enter_context(opened_sink(self.output, self.input.paths, source.cut))
            window = self.window or (1 if source.is_typed else WINDOW)
            engine = stack.enter_context(opened_engine(self.engine, self._loading(window), say))
            meter = _meter(self.task.what, source, engine, say)
            if source.is_typed:
                source.prompt()
                say(source.advice)
            stack.enter_context(_ending_explained(sink, meter))
            sums = stream(
                source.lines,
                sink,
                engine.work,
                identity=engine.identity,
                window=window,
                meter=meter,
            )

        return FileReport(
            lines=meter.lines,
            tokens=meter.tokens,
            seconds=meter.seconds,
            compile_seconds=engine.compile_seconds(),
            weights=str(engine.identity["weights"]),
            counts=self.task.counts(sums),
            is_typed=source.is_typed,
        )

    def _opened_input(self, say: Say) -> contextlib.AbstractContextManager[OpenInput]:
        return opened_input(
            self.input,
            share=self.share,
            output=self.output.path,
            window=self.window or WINDOW,
            say=say,
        )

    def _loading(self, window: int) -> Loading:
        return Loading(
            task=self.task,
            load=self.load,
            window=window,
            is_continued=self.output.path is not None,
            is_worker=isinstance(self.engine, Ray),
        )


def _meter(what: str, source: OpenInput, engine: OpenEngine, say: Say) -> Meter:
    if source.is_typed:
        # A person sees each translation: no progress report needed.
        return Meter(what, say, share=source.lines.share, every=math.inf)
    terminal = sys.stderr.isatty()
    return Meter(what, say, share=source.lines.share, terminal=terminal, clock=engine.clock)


@contextlib.contextmanager
def _ending_explained(sink: Sink, meter: Meter) -> Iterator[None]:
    """Says how to resume if the work within ends early, and closes the meter."""
    try:
        yield
    except BaseException as error:
        advice = f"; the same command resumes {sink.kept}" if sink.kept else ""
        if isinstance(error, Stopped):
            meter.say(f"{error}{advice}")
        elif sink.kept:
            meter.say(f"not finished{advice}")
        raise
    finally:
        meter.close()
