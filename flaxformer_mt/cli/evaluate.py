"""`evaluate`: test sets translated and scored, or another system's output scored as it is."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from flaxformer_mt.cli.arguments import add_decoding, add_workdir, make_parser, say, weights
from flaxformer_mt.cli.processes import add_processes, cluster
from flaxformer_mt.cli.scoring import (
    add_scoring,
    add_testset,
    check_testset_options,
    count,
    language_of,
    scoring,
)
from flaxformer_mt.cli.searching import add_settings, as_asked, given_settings
from flaxformer_mt.config import CorpusConfig, DataConfig, freeze
from flaxformer_mt.data.corpus import CorpusError, read_pairs
from flaxformer_mt.data.corpus.paths import is_remote
from flaxformer_mt.decoding.together import translate_together
from flaxformer_mt.decoding.translator import Translator, chosen_weights
from flaxformer_mt.evaluation.evaluate import Evaluation, check, record
from flaxformer_mt.evaluation.examples import SHOWN
from flaxformer_mt.evaluation.kept import check_place, keep
from flaxformer_mt.evaluation.scoring import assess
from flaxformer_mt.evaluation.segments import read_segments
from flaxformer_mt.evaluation.testsets import load_testset
from flaxformer_mt.parallel import Processes, joined
from flaxformer_mt.rundir.layout import open_run, read_record
from flaxformer_mt.rundir.paths import as_path

Texts = tuple[list[str], list[str]]  # sources, references


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    add_workdir(parser, required=False)
    add_decoding(parser)
    add_settings(parser)
    parser.add_argument(
        "--set", metavar="NAME", help="`valid`, or one of the run's data.test (default: all)"
    )
    parser.add_argument("--src", metavar="FILE", help="score this source file instead, with --ref")
    parser.add_argument("--ref", metavar="FILE", help="its reference translation")
    add_testset(parser)
    parser.add_argument(
        "--hypotheses",
        metavar="FILE",
        help="score this file, in place of translations of a run: with --ref, and --src if at hand",
    )
    parser.add_argument("--output", metavar="DIR", help="where --hypotheses leaves its scores")
    parser.add_argument("--name", help="what to call it in the evaluation folder")
    parser.add_argument(
        "--folder", metavar="DIR", help="where the test files are, if not in data.folder"
    )
    add_scoring(parser)
    parser.add_argument(
        "--examples",
        type=count,
        default=SHOWN,
        metavar="N",
        help="a page with so many of the worst and best translations (0: none)",
    )
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    add_processes(parser)
    options = parser.parse_args(arguments)
    check_testset_options(options, parser)
    _check_flags(options, parser)
    if options.hypotheses is not None:
        return score_file(options, parser)
    with joined(cluster(options, parser), heartbeat=options.heartbeat) as processes:
        return evaluate_run(options, parser, processes)


def evaluate_run(
    options: argparse.Namespace, parser: argparse.ArgumentParser, processes: Processes
) -> int:
    """Several processes share the sentences of each set; the first scores and prints."""
    run = open_run(options.workdir)
    data = freeze(read_record(run).config, str(run.config_file)).data
    if options.langpair not in (None, f"{data.src_lang}-{data.tgt_lang}"):
        if options.tgt_lang is None:  # which the paper's BLEU has rules for, or has not
            parser.error(
                f"--langpair {options.langpair}: this run translates {data.src_lang} to "
                f"{data.tgt_lang}; if the pair is meant, say with --tgt-lang what it translates to"
            )
    tokenizer = "none" if data.tokenized else None
    how = scoring(options, parser, language=data.tgt_lang, tokenizer=tokenizer)
    # Every file is read before anything is translated: a misspelt name should not cost minutes.
    texts = _texts(options, data, parser, processes)
    for name, (sources, references) in texts.items():
        check(name, sources, references, run.evaluation)
    which = weights(options.weights, parser)
    if processes.count > 1:
        # The first one's choice: a run that still trains may have another a moment later.
        which = processes.first(lambda: chosen_weights(run, which))
    translator = Translator.load(run.path, which=which)
    translator = as_asked(options, translator)
    results: dict[str, Any] = {}
    for name, (sources, references) in texts.items():
        search = {"beam_size": options.beam_size, "length_penalty": options.length_penalty}
        start = time.perf_counter()
        translations = translate_together(translator, sources, processes, **search)
        if not processes.is_first:
            continue
        result = record(
            translator,
            translations,
            references,
            sources=sources,
            seconds=time.perf_counter() - start,
            name=name,
            directory=run.evaluation,
            **search,
            scoring=how,
            examples=options.examples,
        )
        say_result(result, sources)
        results[name] = json.loads(result.scores_file.read_text(encoding="utf-8"))
        if not options.json:
            print(f"{name}: {result.scores.one_line()}\n\n{result.assessment.table()}\n")
    if options.json and processes.is_first:
        _print_json(results)
    return 0


def score_file(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Another system's output, scored as a run's would be."""
    how = scoring(options, parser, language=language_of(options))
    name = options.name or Path(options.hypotheses).name.split(".")[0]
    directory = None if options.output is None else as_path(options.output)
    if directory is not None:
        check_place(name, directory)
    hypotheses = read_segments(options.hypotheses)
    sources: list[str] | None
    if options.testset is not None:
        sources, references = _named(options)
    else:
        references = read_segments(options.ref)
        sources = None if options.src is None else read_segments(options.src)
    assessment = assess(hypotheses, references, sources=sources, scoring=how)
    for note in assessment.scores.notes:
        say(f"{name}: {note}")
    content = {"name": name, "hypotheses": options.hypotheses}
    if directory is not None:
        files = keep(
            assessment,
            hypotheses,
            references,
            sources=sources,
            name=name,
            directory=directory,
            settings={"hypotheses": options.hypotheses},
            examples=options.examples,
            origin=f"Hypotheses: {options.hypotheses}",
        )
        say(f"{name}: {files.scores}")
    if options.json:
        _print_json({name: {**content, **assessment.to_json()}})
    else:
        print(f"{name}: {assessment.scores.one_line()}\n\n{assessment.table()}")
    return 0


def _check_flags(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Nothing that was asked for is without effect, and what is scored is said once."""
    given = {name for name, value in vars(options).items() if value is not None}
    if options.testset is not None and given & {"src", "ref", "set", "folder"}:
        parser.error("--testset, --set, and --src with --ref exclude each other, and --folder")
    if options.hypotheses is not None:
        of_runs = {"workdir", "set", "folder", "beam_size", "length_penalty", "dtype"} & given
        of_runs |= {"weights"} if options.weights != "auto" else set()
        for name in sorted(of_runs | set(given_settings(options))):
            parser.error(f"--hypotheses and --{name.replace('_', '-')} do not go together")
        if (options.ref is None) == (options.testset is None):
            parser.error("--hypotheses goes with --ref FILE, or with --testset and --langpair")
        return
    if options.workdir is None:
        parser.error("give --workdir DIR to translate with a run, or --hypotheses FILE")
    if options.output is not None:
        parser.error("--output goes with --hypotheses: a run's scores are kept in the run")
    if (options.src is None) != (options.ref is None):
        parser.error("--src and --ref go together")
    if options.src is not None and given & {"set", "folder"}:
        parser.error("--src and --ref name the files: leave out --set and --folder")
    if options.name is not None and options.src is None and options.testset is None:
        parser.error("--name is for --src with --ref, --testset and --hypotheses")


def read_whole(corpus: CorpusConfig, folder: str, name: str) -> Texts:
    """Sources and references of a test set; a defective line is a CorpusError, never left out."""
    pairs = list(read_pairs(corpus, folder, key=f"data.test.{name}"))
    if not pairs:
        raise CorpusError(f"{corpus.src or corpus.path or name}: holds no sentence to score")
    return [pair.src for pair in pairs], [pair.tgt for pair in pairs]


def say_result(result: Evaluation, sources: Sequence[str]) -> None:
    """What the reader of a score should know besides it."""
    for line in result.split_lines:
        say(f"{result.name}:{line}: longer than the model takes; translated in pieces and rejoined")
    for note in result.scores.notes:
        say(f"{result.name}: {note}")
    rate = len(sources) / max(result.seconds, 1e-9)
    say(
        f"{result.name}: {len(sources):,} lines in {result.seconds:.1f} s ({rate:,.0f}/s); "
        f"{result.scores_file}"
    )


def _texts(
    options: argparse.Namespace,
    data: DataConfig,
    parser: argparse.ArgumentParser,
    processes: Processes,
) -> dict[str, Texts]:
    """What there is to translate, by name."""
    if options.testset is None:
        folder = data.folder if options.folder is None else options.folder
        corpora = _corpora(options, data, parser)
        return {name: read_whole(corpus, folder, name) for name, corpus in corpora.items()}
    # One fetches it first: those that share its disk then find it there.
    processes.first(lambda: _named(options) and None)
    name = options.name or f"{options.testset}.{options.langpair}".replace("/", "_")
    _check_name(name, data, parser)
    return {name: _named(options)}


def _named(options: argparse.Namespace) -> Texts:
    found = load_testset(options.testset, options.langpair)
    if found.further_references:
        say(f"{found.name}: has {found.further_references} more references, which are not used")
    return found.sources, found.references


def _corpora(
    options: argparse.Namespace, data: DataConfig, parser: argparse.ArgumentParser
) -> dict[str, CorpusConfig]:
    if options.src is not None:
        name = options.name or PurePath(options.src).name.split(".")[0]
        _check_name(name, data, parser)
        src, ref = (_whole_path(path, parser) for path in (options.src, options.ref))
        return {name: CorpusConfig(name=name, src=src, tgt=ref)}
    named = {corpus.name: corpus for corpus in data.test} | {"valid": data.valid}
    if options.set is not None:
        if options.set not in named:
            parser.error(f"--set {options.set}: this run has {', '.join(named)}")
        return {options.set: named[options.set]}
    if not data.test:
        parser.error(
            "this run's config names no data.test: use --set valid, or --src FILE --ref FILE"
        )
    return {corpus.name: corpus for corpus in data.test}


def _check_name(name: str, data: DataConfig, parser: argparse.ArgumentParser) -> None:
    """The scores of one test set must not take the place of another's."""
    if name in {corpus.name for corpus in data.test} | {"valid"}:
        parser.error(f"{name!r} is a test set of this run's: give this one another --name")


def _whole_path(path: str, parser: argparse.ArgumentParser) -> str:
    """A file's path, wherever the test files of the run are."""
    if is_remote(path):
        return path
    if not os.path.exists(path) or os.path.isdir(path):
        parser.error(f"--src and --ref name files; {path} is none")
    return str(Path(path).absolute())


def _print_json(content: Any) -> None:
    json.dump(content, sys.stdout, indent=2, ensure_ascii=False)
    print()
