"""Files of any size: translated, scored, joined from shards. `translate` and `score` use these."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Unpack

from flaxformer_mt.api import say
from flaxformer_mt.bulk import joining
from flaxformer_mt.bulk.forms import Form, PairForm
from flaxformer_mt.bulk.job import FileReport, Job
from flaxformer_mt.bulk.outputs import Output
from flaxformer_mt.bulk.reading import Input, OneInput, PairedInputs
from flaxformer_mt.bulk.scoring import ScoreCounts, ScoreSettings
from flaxformer_mt.bulk.shards import AllShards, OneShard, Share
from flaxformer_mt.bulk.translating import TranslateSettings, TranslationCounts
from flaxformer_mt.cluster import Engine, EngineName, Ray, engine_of
from flaxformer_mt.config import ConfigError
from flaxformer_mt.decoding.options import WantedOfAll, options_of_all
from flaxformer_mt.decoding.text.segments import Overlong
from flaxformer_mt.decoding.translator import Translator

Place = str | os.PathLike[str]
Model = Place | Translator | Callable[[], Translator]
"""A run directory, a translator, or a function that loads one, which Ray's workers call."""


def translate_file(
    run: Model,
    input: Place | None,
    output: Place | None,
    *,
    form: Form = Form(),
    prefix: str = "",
    window: int | None = None,
    restart: bool = False,
    shard: str | None = None,
    output_shards: int | None = None,
    engine: Engine | EngineName = "local",
    **wanted: Unpack[WantedOfAll],
) -> FileReport[TranslationCounts]:
    """Translates the lines of a file, in order and in constant memory.

    `run` is a run directory or a `Translator`; with `engine` "ray" or `Ray(...)` a run directory,
    or a function that loads a translator: every machine loads its own. `input` may be compressed
    and, like `output`, in a bucket; None is standard input or output. `output` is written as
    FILE.part until it is complete: after an error, Ctrl-C or a crash, the same call resumes it, as
    does the same command. `restart` discards what an earlier call has written.

    `form` says which column or key is translated and what is written. `prefix`, and what else is
    `wanted` of all lines, is as in `Translator.translate`; a line's own wishes are under keys that
    `form` names. At a change of masks, which are compared by their `repr`, nothing is resumed.

    `window` lines (default: 4096) are read before any is written. `shard` "I/N" writes only part I
    of N into FILE.shard-I-of-N, to share work between machines; `output_shards` writes all N of
    them; `join_shards` makes FILE from them.

    Returns what this call did, without the part that an earlier call had done, and `counts` of the
    whole output. Progress and remarks about single lines go to standard error.

    Raises CorpusError and InputError with file and line, OutputError, ConfigError, what
    `Translator.load` and `Translator.translate` raise, and ClusterError.
    """
    search = options_of_all(wanted, "translate_file")
    shown = dataclasses.replace(form.shown, n_best=search.n_best > 1)
    return Job(
        task=TranslateSettings(
            form=dataclasses.replace(form, shown=shown), search=search, prefix=prefix
        ),
        load=_loader(run, engine_of(engine)),
        input=OneInput(_path(input), paragraphs=form.join_lines),
        output=Output(_path(output), restart),
        share=_share(shard, output_shards),
        window=window,
        engine=engine_of(engine),
    ).run(say)


def score_file(
    run: Model,
    input: Place | tuple[Place, Place] | None,
    output: Place | None,
    *,
    form: PairForm | None = None,
    overlong: Overlong = "refuse",
    window: int | None = None,
    restart: bool = False,
    shard: str | None = None,
    output_shards: int | None = None,
    engine: Engine | EngineName = "local",
) -> FileReport[ScoreCounts]:
    """Scores the pairs of a file, or of two files (sources, translations), line by line.

    `form` says where a line has its pair (default: in its first two columns) and what is written.
    All else is as in `translate_file`, and `overlong` as in `Translator.score`.
    """
    pairs: Input
    if isinstance(input, tuple):
        pairs = PairedInputs(os.fspath(input[0]), os.fspath(input[1]))
        form = form or PairForm(name="files")
    else:
        pairs = OneInput(_path(input))
        form = form or PairForm(name="tsv")
    if (form.name == "files") != isinstance(pairs, PairedInputs):
        raise ConfigError(
            f"PairForm(name={form.name!r}): two files need 'files', one file 'tsv' or 'jsonl'"
        )
    return Job(
        task=ScoreSettings(form=form, overlong=overlong),
        load=_loader(run, engine_of(engine)),
        input=pairs,
        output=Output(_path(output), restart),
        share=_share(shard, output_shards),
        window=window,
        engine=engine_of(engine),
    ).run(say)


def join_shards(output: Place, count: int, *, restart: bool = False) -> None:
    """Writes a file from its `count` shards, all of which `translate_file` or `score_file` must
    have made of the same input with the same settings.

    An interrupted call is resumed, unless `restart`. Raises OutputError and ConfigError.
    """
    joining.join(Output(os.fspath(output), restart), count, say)


def _path(place: Place | None) -> str | None:
    return None if place is None else os.fspath(place)


def _loader(run: Model, engine: Engine) -> Callable[[], Translator]:
    if isinstance(run, Translator):
        if isinstance(engine, Ray):
            raise ConfigError(
                "a Translator belongs to its process: for Ray give a run directory, or a function "
                "that loads one"
            )
        return lambda: run
    if isinstance(run, str | os.PathLike):
        return functools.partial(Translator.load, os.fspath(run))
    return run


def _share(shard: str | None, output_shards: int | None) -> Share | None:
    if shard is not None and output_shards is not None:
        raise ConfigError("give either `shard` (one part) or `output_shards` (all), not both")
    if shard is not None:
        return OneShard(shard)
    return None if output_shards is None else AllShards(output_shards)
