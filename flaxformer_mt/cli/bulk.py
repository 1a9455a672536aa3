"""Flags shared by commands that turn lines into lines, and how these commands stop."""

from __future__ import annotations

import contextlib
import functools
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.bulk.shards import OneShard, ShareError
from flaxformer_mt.bulk.stream import WINDOW
from flaxformer_mt.cli.arguments import Flag, as_asked, positive, say_if_untagged, shards
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.cli.runtime import check_runtime, searched_as_asked
from flaxformer_mt.cluster import Local, Ray
from flaxformer_mt.config import ConfigError
from flaxformer_mt.errors import STOPPED, Stopped
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.paths import as_path

if TYPE_CHECKING:
    from flaxformer_mt.bulk.job import FileReport

Loader = Callable[[], "fm.Translator"]

OUTPUT = {
    "--output": Flag(
        "output, local or gs://, written as FILE.part until complete; after an "
        "interruption the same command resumes it (default: standard output)",
        takes="FILE",
    ),
    "--shard": Flag(
        "process only part I of N (I from 0 to N-1) into FILE.shard-I-of-N, to share "
        "work between machines or array tasks",
        takes="I/N",
    ),
    "--output-shards": Flag(
        "write all N shards of an input file instead of FILE", takes="N", read=shards
    ),
    "--join": Flag("write FILE from its N finished shards", takes="N", read=shards),
    "--restart": Flag("start over, discarding earlier output"),
    "--engine": Flag(
        "ray: share the work among the machines of a Ray cluster, each with "
        "its own copy of the model; the output is the same (extra `ray`)",
        choices=("local", "ray"),
    ),
    "--ray-address": Flag(
        "the Ray cluster (default: RAY_ADDRESS, else this machine's own)", takes="HOST:PORT"
    ),
    "--ray-chips": Flag(
        "TPU or GPU chips (or CPUs) per worker (default: all of a machine's)",
        takes="N",
        read=positive,
    ),
    "--window": Flag(
        f"lines to read before writing any (default: {WINDOW}; 1 at a terminal). A "
        "larger window batches better; a smaller one loses less to an interruption",
        takes="N",
        read=positive,
    ),
}


def run_or_join(
    options: Namespace, parser: ArgumentParser, call: Callable[..., FileReport[Any]]
) -> int:
    """Has `call` translate or score with the flags of `OUTPUT`, or joins shards; returns the exit
    status.

    `call` takes a `Loader` and the arguments of `fm.translate_file` about output. It is what first
    imports the library's part, which takes seconds: by then SIGTERM is handled.
    """
    _check_engine(options, parser)
    _check_join(options, parser)
    if options.join:
        fm.join_shards(options.output, options.join, restart=options.restart)
        say(f"{options.output}: joined from {options.join} shards")
        return 0

    try:
        _check_early(options)
    except ShareError as error:
        parser.error(f"--{error.argument.replace('_', '-')} {error.problem}")
    # Only with a file the same command can resume.
    stopping = contextlib.nullcontext() if options.output is None else sigterm_stops()
    try:
        with stopping:
            report = call(
                functools.partial(loaded, options),
                output=options.output,
                window=options.window,
                restart=options.restart,
                shard=options.shard,
                output_shards=options.output_shards,
                engine=_engine(options),
            )
    except Stopped:
        return STOPPED
    except ShareError as error:
        parser.error(f"--{error.argument.replace('_', '-')} {error.problem}")
    for line in report.describe():
        say(line)
    return 0


@contextlib.contextmanager
def sigterm_stops() -> Iterator[None]:
    """The first SIGTERM within raises Stopped; a second one acts as usual."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, previous)
        raise Stopped("SIGTERM received")

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _check_engine(options: Namespace, parser: ArgumentParser) -> None:
    if options.engine == "local" and (options.ray_address or options.ray_chips):
        parser.error("--ray-address and --ray-chips need --engine ray")


def _engine(options: Namespace) -> Local | Ray:
    if options.engine == "local":
        return Local()
    return Ray(address=options.ray_address, chips=options.ray_chips)


def _check_join(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses --join without a file to write, or beside flags that write shards."""
    if options.join and options.output is None:
        parser.error("--join needs --output")
    if sum(map(bool, (options.shard, options.join, options.output_shards))) > 1:
        parser.error("give only one of --shard (one part), --output-shards (all), --join")


def _check_early(options: Namespace) -> None:
    """Says what is wrong with shares and folders before JAX is loaded."""
    for name in ("shard", "output_shards"):
        if getattr(options, name) is not None and options.output is None:
            raise ShareError(name, "needs an output file")
    if options.shard is not None:
        OneShard(options.shard)
    if options.engine == "local":
        for folder in (options.workdir, *getattr(options, "ensemble", ())):
            open_run(folder)
    if hasattr(options, "runtime"):  # `score` has no search
        check_runtime(options)


def loaded(options: Namespace) -> fm.Translator:
    """The run's model, with those of `--ensemble` and the settings of the command."""
    keep_programs()
    folders = (options.workdir, *getattr(options, "ensemble", ()))
    translator = fm.Translator.load_ensemble(
        [str(as_path(folder)) for folder in folders],
        which=options.weights,
        shortlist=getattr(options, "shortlist", False),  # `score` has none
    )
    translator = as_asked(options, translator)
    if hasattr(options, "runtime"):  # `score` has no search
        translator = searched_as_asked(options, translator)
    say_if_untagged(translator)
    beam_size = translator.config.beam_size
    n_best = getattr(options, "n_best", 1)
    if n_best > beam_size:
        raise ConfigError(f"--n-best {n_best} must lie between 1 and the beam size, {beam_size}")
    return translator
