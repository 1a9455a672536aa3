"""`compare`: systems on one test set, and whether they differ by more than chance."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import Flag, flags, make_parser, million, print_json, utf8_text
from flaxformer_mt.cli.scoring import (
    BLANK_REFERENCES,
    TESTSET,
    add_scoring,
    check_testset_options,
    given_text,
    language_of,
    name_of_references,
    require_aligned,
    scoring,
)
from flaxformer_mt.evaluation.compare import (
    METHODS,
    Comparison,
    System,
    common_scoring,
    compare,
    find_system,
)
from flaxformer_mt.evaluation.n_best import CHOICES
from flaxformer_mt.evaluation.significance import TRIALS
from flaxformer_mt.rundir.paths import as_path, check_output, write_json

_EPILOG = """SYSTEM is a file of hypotheses from any toolkit, one per line or n-best lists
as Moses and Marian write them; a run directory, with
--set to choose an evaluation; or a NAME.json written by `evaluate`. NAME=SYSTEM gives it a name.
The first system is the baseline. Runs include their references; files need --ref."""


_WHAT = {
    "systems": Flag("two or more; see below", takes="SYSTEM", several=True),
    "--ref": Flag("reference, or several, if the systems include none", takes="FILE", several=True),
    **BLANK_REFERENCES,
    "--src": Flag("source, for COMET and scores by source length", takes="FILE"),
    **TESTSET,
    "--from-n-best": Flag(
        "which translation to score in files of n-best lists: each sentence's first, or the one "
        "with the highest score in the file (default: first)",
        choices=CHOICES,
    ),
    "--set": Flag("run directories: the evaluation to compare", takes="NAME", read=utf8_text),
    "--method": Flag("significance test", choices=(*METHODS, "both")),
    "--trials": Flag(
        f"trials of approximate randomization (default: {TRIALS}); --resamples "
        "is for the bootstrap",
        takes="N",
        read=million,
    ),
    "--json": Flag("print JSON instead of the tables"),
    "--output": Flag("also write the JSON to this file", takes="FILE"),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, _EPILOG)
    flags(parser, _WHAT, method="both")
    add_scoring(parser)
    options = parser.parse_args(arguments)
    _check(options, parser)
    systems = [
        find_system(system, evaluation=options.set, from_n_best=options.from_n_best, note=say)
        for system in options.systems
    ]
    if options.set is not None and not any(system.evaluation for system in systems):
        parser.error("--set is for run directories, but these systems are files")
    if options.from_n_best is not None and not any(system.has_n_best for system in systems):
        parser.error("--from-n-best is for files of n-best lists, but these systems have none")
    sources, references = given_text(options)
    if references is not None:
        reference = name_of_references(options), references
        for system in systems:
            require_aligned((system.name, system.hypotheses), reference)

    known = common_scoring(
        systems,
        tokenizer=options.tokenize,
        lowercase=options.lowercase,
        language=_language(options, systems),
    )
    comparison = compare(
        systems,
        references,
        sources=sources,
        scoring=scoring(options, parser, known),
        methods=METHODS if options.method == "both" else (options.method,),
        trials=options.trials or TRIALS,
        note=say,
    )
    _report(options, comparison)
    return 0


def _check(options: Namespace, parser: ArgumentParser) -> None:
    check_testset_options(options, parser)
    if options.testset is not None and (options.ref is not None or options.src is not None):
        parser.error("--testset can't be used with --ref or --src")
    if options.trials is not None and options.method == "bootstrap":
        parser.error("--trials is for randomization: leave out --trials or --method bootstrap")
    if options.output is not None:
        check_output(options.output)


def _language(options: Namespace, systems: Sequence[System]) -> str:
    """The target language: by --langpair, else as an evaluation recorded it, else by the names of
    files and folders."""
    recorded = next((system.language for system in systems if system.language), "")
    if options.langpair is None and recorded:
        return recorded
    return language_of(options)


def _report(options: Namespace, comparison: Comparison) -> None:
    for system in comparison.systems:
        for note in system.assessment.scores.notes:
            say(f"{system.name}: {note}")
    if options.output is not None:
        write_json(as_path(options.output), comparison.to_json())
    if options.json:
        print_json(comparison.to_json())
    else:
        print(comparison.table())
