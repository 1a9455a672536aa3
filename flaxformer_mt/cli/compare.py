"""`compare`: systems on one test set, and whether they differ by more than chance."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from flaxformer_mt.cli.arguments import Flag, flags, make_parser, million, utf8_text
from flaxformer_mt.cli.scoring import BLANK_REFERENCES, TESTSET, add_scoring, check_scoring
from flaxformer_mt.evaluation import METHODS, N_BEST_CHOICES, TRIALS
from flaxformer_mt.rundir.paths import check_output

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
        choices=N_BEST_CHOICES,
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
    from flaxformer_mt.cli.actions.compare import compare_systems

    return compare_systems(options, parser)


def _check(options: Namespace, parser: ArgumentParser) -> None:
    check_scoring(options, parser)
    if options.testset is not None and (options.ref is not None or options.src is not None):
        parser.error("--testset can't be used with --ref or --src")
    if options.trials is not None and options.method == "bootstrap":
        parser.error("--trials is for randomization: leave out --trials or --method bootstrap")
    if options.output is not None:
        check_output(options.output)
