"""`compare`: two or more systems on one test set, and whether they differ by more than chance."""

import argparse
from collections.abc import Sequence

from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import flags, make_parser, print_json
from flaxformer_mt.cli.scoring import (
    TESTSET,
    add_scoring,
    check_testset_options,
    given_text,
    language_of,
    scoring,
)
from flaxformer_mt.evaluation.compare import (
    METHODS,
    Comparison,
    common_scoring,
    compare,
    find_system,
)
from flaxformer_mt.evaluation.significance import TRIALS
from flaxformer_mt.rundir.paths import as_path, write_json

_EPILOG = """SYSTEM is a file of hypotheses, one a line, of whatever toolkit; a run directory, of
which --set names an evaluation; or the NAME.json that `evaluate` has written. NAME=SYSTEM gives
it a name. The first system is the baseline. Runs bring their references along; files need --ref."""


_WHAT = {
    "systems SYSTEM...": "two or more: see below",
    "--ref FILE": "reference, if the systems bring none",
    "--src FILE": "source, for scores by its length and COMET",
    **TESTSET,
    "--set NAME": "which evaluation of run directories",
    f"--method {'|'.join(METHODS)}|both": "test of significance",
    "--trials N:int": f"of approximate randomization (default: {TRIALS}); --resamples are those "
    "of the bootstrap",
    "--json": "print JSON in place of the tables",
    "--output FILE": "write the JSON to this file as well",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, _EPILOG)
    flags(parser, _WHAT, method="both")
    add_scoring(parser)
    options = parser.parse_args(arguments)
    check_testset_options(options, parser)
    comparison = compare_systems(options, parser)
    if options.output is not None:
        write_json(as_path(options.output), comparison.to_json())
    if options.json:
        print_json(comparison.to_json())
    else:
        print(comparison.table())
    return 0


def compare_systems(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Comparison:
    """Reads what the arguments name, and compares it."""
    if options.testset is not None and (options.ref is not None or options.src is not None):
        parser.error("--testset, and --ref with --src exclude each other")
    if len(options.systems) < 2:
        parser.error("a comparison takes two systems or more")
    if options.trials is not None and options.method == "bootstrap":
        parser.error("--trials are of randomization: leave them out, or --method bootstrap")
    systems = [find_system(system, evaluation=options.set) for system in options.systems]
    if options.set is not None and not any(system.evaluation for system in systems):
        parser.error("--set names an evaluation of run directories, and these are files")
    sources, references = given_text(options)
    known = common_scoring(
        systems,
        tokenizer=options.tokenize,
        lowercase=options.lowercase,
        language=language_of(options),
    )
    comparison = compare(
        systems,
        references,
        sources=sources,
        scoring=scoring(
            options,
            parser,
            language=known.language,
            tokenizer=known.tokenizer,
            lowercase=known.lowercase,
        ),
        methods=METHODS if options.method == "both" else (options.method,),
        trials=options.trials or TRIALS,
        note=say,
    )
    for system in comparison.systems:
        for note in system.assessment.scores.notes:
            say(f"{system.name}: {note}")
    return comparison
