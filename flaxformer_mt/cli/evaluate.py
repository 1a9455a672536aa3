"""`evaluate`: translates and scores test sets, or scores another system's output."""

from __future__ import annotations

import dataclasses
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import flaxformer_mt as fm
from flaxformer_mt.api import config_of, say
from flaxformer_mt.api.runs import VALID, evaluations, sets_of_run
from flaxformer_mt.cli.arguments import (
    WORKDIR,
    add_decoding,
    add_processes,
    add_search,
    as_asked,
    cluster,
    flags,
    given_settings,
    make_parser,
    print_json,
)
from flaxformer_mt.cli.scoring import (
    TESTSET,
    add_scoring,
    check_testset_options,
    given_text,
    language_of,
    languages_of,
    require_aligned,
    scoring,
)
from flaxformer_mt.config.languages import base_language
from flaxformer_mt.evaluation.evaluate import check_place, keep, read_segments
from flaxformer_mt.evaluation.page import SHOWN
from flaxformer_mt.evaluation.scoring import Scoring, assess, scoring_of
from flaxformer_mt.rundir.checkpoint_choice import Chosen, chosen_weights
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.paths import as_path

if TYPE_CHECKING:
    from flaxformer_mt.parallel.processes import Processes

_WHAT = {
    **WORKDIR,
    "--set NAME": "one of the run's test sets (data.test; default: all), or `valid`",
    "--src FILE": "a source file instead; needs --ref",
    "--ref FILE": "its reference translation",
    **TESTSET,
    "--hypotheses FILE": "score this file instead of a run's translations; needs --ref; --src is "
    "optional",
    "--output DIR": "where to save scores and translations (default: the run's evaluation folder; "
    "with --hypotheses: nowhere)",
    "--name NAME": "name in the evaluation folder",
    "--folder DIR": "folder of the test files, if not data.folder",
    "--json": "print the scores as JSON",
}
_OF_RUNS = set(
    "workdir weights set folder dtype coordinator num_processes process_id heartbeat".split()
)


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    add_decoding(parser)
    add_search(parser)
    flags(parser, _WHAT)
    add_scoring(parser)
    shown = "how many of the worst and best translations to show on a page (0: none)"
    flags(parser, {"--examples N:count": shown}, examples=SHOWN)
    add_processes(parser)
    options = parser.parse_args(arguments)
    check_testset_options(options, parser)
    given = {name for name, value in vars(options).items() if value is not None}
    if options.testset is not None and given & {"src", "ref", "set", "folder"}:
        parser.error("--testset can't be used with --set, --src, --ref or --folder")
    if options.hypotheses is not None:
        given -= {"weights"} if options.weights == "auto" else set()
        for name in sorted(given & _OF_RUNS | set(given_settings(options))):
            parser.error(f"--hypotheses can't be used with --{name.replace('_', '-')}")
        if options.shortlist:
            parser.error("--hypotheses can't be used with --shortlist")
        if (options.ref is None) == (options.testset is None):
            parser.error("--hypotheses needs --ref FILE, or --testset and --langpair")
        return score_file(options, parser)
    if options.workdir is None:
        parser.error("give --workdir DIR to translate with a run, or --hypotheses FILE")
    if (options.src is None) != (options.ref is None):
        parser.error("--src and --ref go together")
    if options.src is not None and given & {"set", "folder"}:
        parser.error("--src and --ref already name the files: leave out --set and --folder")
    if options.set == VALID and options.folder is not None:
        parser.error("--folder is for test files, but the run itself holds the text of --set valid")
    if options.name is not None and options.src is None and options.testset is None:
        parser.error("--name is for --src with --ref, --testset and --hypotheses")
    from flaxformer_mt.parallel.processes import joined

    with joined(cluster(options, parser), heartbeat=options.heartbeat) as processes:
        return evaluate_run(options, parser, processes)


def evaluate_run(options: Namespace, parser: ArgumentParser, processes: Processes) -> int:
    """Several processes share each set's sentences; the first one scores and prints."""
    run = open_run(options.workdir)
    data = config_of(run).data
    if options.langpair is not None and options.tgt_lang is None:
        theirs = [base_language(code) for code in languages_of(options.langpair)]
        if theirs != [base_language(data.src_lang), base_language(data.tgt_lang)]:
            pair = f"{data.src_lang} to {data.tgt_lang}"
            parser.error(
                f"--langpair {options.langpair}: this run translates {pair}; "
                "to score this pair anyway, add its --tgt-lang"
            )
    how = scoring(options, parser, scoring_of(data))
    # Every file is read before anything is translated, so that a misspelt name costs no time.
    if options.testset is None and options.src is None:
        sets = sets_of_run(run, options.set, folder=options.folder)
    else:
        stem = PurePath(options.src or "").name.split(".")[0]
        testset = f"{options.testset}.{options.langpair}".replace("/", "_")
        name = options.name or (stem if options.testset is None else testset)
        if name in {VALID, *(corpus.name for corpus in data.test)}:
            # One set's scores must not replace another's.
            parser.error(f"{name!r} is already a test set of this run: choose another --name")
        sources, references = given_text(options, processes)
        assert sources is not None and references is not None
        sets = {name: (sources, references)}
    directory = run.evaluation if options.output is None else as_path(options.output)
    # The first one chooses: a run in training may change a moment later.
    chosen = processes.first(lambda: dataclasses.asdict(chosen_weights(run, options.weights)))

    def load() -> fm.Translator:
        short, which = options.shortlist, Chosen(**chosen)
        return as_asked(options, fm.Translator.load(run, which=which, shortlist=short))

    from flaxformer_mt.parallel.compile_cache import watch_compilations

    results: dict[str, Any] = {}
    compiled = watch_compilations().seconds
    for result in evaluations(
        sets, load, directory, scoring=how, examples=options.examples, processes=processes
    ):
        before, compiled = compiled, watch_compilations().seconds
        for line in result.split_lines:
            say(f"{result.name}:{line}: too long for the model; translated in pieces and rejoined")
        for note in result.scores.notes:
            say(f"{result.name}: {note}")
        lines, seconds = len(result.translations), result.seconds
        rate = f"{lines:,} lines in {seconds:.1f} s ({lines / max(seconds, 1e-9):,.0f}/s)"
        rate += f" plus {compiled - before:.1f} s compiling"
        say(f"{result.name}: {rate}; {result.files.scores}")
        results[result.name] = json.loads(result.files.scores.read_text("utf-8"))
        if not options.json:
            print(f"{result.name}: {result.scores.one_line()}\n\n{result.assessment.table()}\n")
    if options.json and processes.is_first:
        print_json(results)
    return 0


def score_file(options: Namespace, parser: ArgumentParser) -> int:
    how = scoring(options, parser, Scoring(language=language_of(options)))
    name = options.name or PurePath(options.hypotheses).name.split(".")[0]
    directory = None if options.output is None else as_path(options.output)
    if directory is not None:
        check_place(name, directory)
    hypotheses = read_segments(options.hypotheses)
    sources, references = given_text(options)
    assert references is not None  # --ref or --testset: it is checked
    require_aligned((options.hypotheses, hypotheses), (options.ref or options.testset, references))
    assessment = assess(hypotheses, references, sources=sources, scoring=how)
    for note in assessment.scores.notes:
        say(f"{name}: {note}")
    settings = {"hypotheses": options.hypotheses}
    if directory is not None:
        files = keep(
            assessment,
            name=name,
            directory=directory,
            settings=settings,
            examples=options.examples,
            origin=f"Hypotheses: {options.hypotheses}",
        )
        say(f"{name}: {files.scores}")
    if options.json:
        print_json({name: {"name": name, **settings, **assessment.to_json()}})
    else:
        print(f"{name}: {assessment.scores.one_line()}\n\n{assessment.table()}")
    return 0
