"""What `evaluate` scores: a run's own sets, one of sacreBLEU's by name, or files."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from pathlib import PurePath

from flaxformer_mt.cli.arguments import say
from flaxformer_mt.config import CorpusConfig, DataConfig
from flaxformer_mt.data.corpus import CorpusError, read_pairs
from flaxformer_mt.data.prepare import valid_text
from flaxformer_mt.data.prepare.manifest import VALID_TEXT
from flaxformer_mt.evaluation.errors import ScoringError
from flaxformer_mt.evaluation.segments import read_segments
from flaxformer_mt.evaluation.testsets import NamedSet, load_testset
from flaxformer_mt.parallel import ALONE, Processes
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import exists

VALID = "valid"  # what the set is called that training validates on


@dataclasses.dataclass(frozen=True)
class TextSet:
    """Sentences to translate with their references, and what their scores are called."""

    name: str
    sources: list[str]
    references: list[str]


def sets_of(
    options: argparse.Namespace,
    parser: argparse.ArgumentParser,
    *,
    run: RunDirectory,
    data: DataConfig,
    processes: Processes,
) -> list[TextSet]:
    """What `run` is to translate, all of it read. Raises CorpusError, and as `given_text`."""
    own = {corpus.name: corpus for corpus in data.test}
    if options.testset is not None or options.src is not None:
        name = options.name or _name(options)
        if name in {*own, VALID}:
            # The scores of one set must not take the place of another's.
            parser.error(f"{name!r} is a test set of this run's: give this one another --name")
        sources, references = given_text(options, processes)
        assert sources is not None
        return [TextSet(name, sources, references)]
    if options.set == VALID:
        return [_valid(run)]
    if options.set is not None and options.set not in own:
        parser.error(f"--set {options.set}: this run has {', '.join([*own, VALID])}")
    if not own:
        parser.error(
            "this run's config names no data.test: use --set valid, or --src FILE --ref FILE"
        )
    folder = data.folder if options.folder is None else options.folder
    chosen = own.values() if options.set is None else [own[options.set]]
    return [_configured(corpus, folder) for corpus in chosen]


def given_text(
    options: argparse.Namespace, processes: Processes = ALONE
) -> tuple[list[str] | None, list[str]]:
    """Sources, if they are known, and references, of `--testset` or of `--src` and `--ref`.

    Raises ScoringError, and CorpusError for files that cannot be read.
    """
    if options.testset is not None:
        found = _named(options, processes)
        return found.sources, found.references
    sources = None if options.src is None else read_segments(options.src)
    return sources, read_segments(options.ref)


def _name(options: argparse.Namespace) -> str:
    if options.testset is not None:
        return f"{options.testset}.{options.langpair}".replace("/", "_")
    return PurePath(options.src).name.split(".")[0]


def _named(options: argparse.Namespace, processes: Processes) -> NamedSet:
    load = functools.cache(lambda: load_testset(options.testset, options.langpair))
    # One fetches it first: those that share its disk then find it there.
    processes.first(lambda: load() and None)
    found = load()
    if found.further_references:
        say(f"{found.name}: has {found.further_references} more references, which are not used")
    return found


def _valid(run: RunDirectory) -> TextSet:
    """The text that training validates on, as `prepare` has left it in the run."""
    if not all(exists(run.data / name) for name in VALID_TEXT):
        raise ScoringError(
            f"{run}: has no validation text: {' and '.join(VALID_TEXT)} are not in its data/; give "
            "the files with --src FILE --ref FILE"
        )
    return TextSet(VALID, *valid_text(run.data))


def _configured(corpus: CorpusConfig, folder: str) -> TextSet:
    """One of the config's test sets; a defective line is a CorpusError, never left out."""
    pairs = list(read_pairs(corpus, folder, key=f"data.test.{corpus.name}"))
    if not pairs:
        raise CorpusError(f"{corpus.src or corpus.path or corpus.name}: holds no sentence to score")
    return TextSet(corpus.name, [pair.src for pair in pairs], [pair.tgt for pair in pairs])
