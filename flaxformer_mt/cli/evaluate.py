"""`evaluate`: translates and scores test sets, or scores another system's output."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence, Set

from flaxformer_mt.cli.arguments import (
    NO_SPLIT,
    TAG,
    WORKDIR,
    Flag,
    add_decoding,
    add_processes,
    add_search,
    cluster,
    count,
    flags,
    given_settings,
    make_parser,
    patience,
    utf8_text,
)
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.cli.scoring import BLANK_REFERENCES, TESTSET, add_scoring, check_scoring
from flaxformer_mt.evaluation import N_BEST_CHOICES, SHOWN, is_validation
from flaxformer_mt.rundir.layout import open_run

_WHAT = {
    **WORKDIR,
    "--set": Flag(
        "one of the run's test sets (data.test; default: all), `valid`, or `valid.NAME` of several "
        "validation sets",
        takes="NAME",
        read=utf8_text,
    ),
    "--src": Flag("a source file instead; needs --ref", takes="FILE"),
    "--ref": Flag(
        "its reference translation, or several of them, one per file",
        takes="FILE",
        several=True,
    ),
    **BLANK_REFERENCES,
    **TESTSET,
    "--hypotheses": Flag(
        "score this file instead of a run's translations: one per line, or n-best lists as Moses "
        "and Marian write them; needs --ref; --src is optional",
        takes="FILE",
    ),
    "--from-n-best": Flag(
        "which translation to score if --hypotheses has n-best lists: each sentence's first, the "
        "one with the highest score in the file, or, as an oracle, the one with the highest chrF "
        "(default: first)",
        choices=(*N_BEST_CHOICES, "oracle"),
    ),
    "--output": Flag(
        "where to save scores and translations (default: the run's evaluation folder; "
        "with --hypotheses: nowhere)",
        takes="DIR",
    ),
    "--name": Flag("name in the evaluation folder", takes="NAME", read=utf8_text),
    "--folder": Flag("folder of the test files, if not data.folder", takes="DIR"),
    "--json": Flag("print the scores as JSON"),
}
_OF_RUNS = set(
    "workdir weights set folder dtype tag coordinator num_processes process_id heartbeat".split()
)


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    add_decoding(parser)
    add_search(parser)
    flags(parser, _WHAT | NO_SPLIT | TAG)
    add_scoring(parser)
    examples = "how many of the worst and best translations to show on a page (0: none)"
    flags(parser, {"--examples": Flag(examples, takes="N", read=count)}, examples=SHOWN)
    add_processes(parser)
    options = parser.parse_args(arguments)
    check_scoring(options, parser)
    given_flags = {name for name, value in vars(options).items() if value is not None}
    if options.testset is not None and given_flags & {"src", "ref", "set", "folder"}:
        parser.error("--testset can't be used with --set, --src, --ref or --folder")
    if options.hypotheses is not None:
        _check_scored_file(options, parser, given_flags)
        from flaxformer_mt.cli.actions.hypotheses import score_file

        return score_file(options)

    _check_run(options, parser, given_flags)
    open_run(options.workdir)  # says what is wrong before JAX is loaded
    keep_programs()
    from flaxformer_mt.cli.actions.evaluate import evaluate_run
    from flaxformer_mt.parallel.processes import joined

    with joined(cluster(options, parser), **patience(options)) as processes:
        return evaluate_run(options, parser, processes)


def _check_scored_file(options: Namespace, parser: ArgumentParser, given_flags: Set[str]) -> None:
    """Refuses flags that --hypotheses can't be used with."""
    if options.weights == "auto":  # the default
        given_flags = given_flags - {"weights"}
    for name in sorted(given_flags & _OF_RUNS | set(given_settings(options))):
        parser.error(f"--hypotheses can't be used with --{name.replace('_', '-')}")
    for name, is_given in (("shortlist", options.shortlist), ("no-split", options.no_split)):
        if is_given:
            parser.error(f"--hypotheses can't be used with --{name}")
    if (options.ref is None) == (options.testset is None):
        parser.error("--hypotheses needs --ref FILE, or --testset and --langpair")


def _check_run(options: Namespace, parser: ArgumentParser, given_flags: Set[str]) -> None:
    """Refuses flags that contradict each other where a run translates."""
    if options.workdir is None:
        parser.error("give --workdir DIR to translate with a run, or --hypotheses FILE")
    if options.from_n_best is not None:
        parser.error("--from-n-best is for a file of n-best lists: add --hypotheses FILE")
    if (options.src is None) != (options.ref is None):
        parser.error("--src and --ref go together")
    if options.src is not None and given_flags & {"set", "folder"}:
        parser.error("--src and --ref already name the files: leave out --set and --folder")
    if is_validation(options.set) and options.folder is not None:
        parser.error("--folder is for test files, but the run itself holds the text of --set valid")
    if options.src is None and options.testset is None:
        _check_own_sets(options, parser)


def _check_own_sets(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses flags that have no use for the run's own sets."""
    if options.tag is not None:
        parser.error("--tag is for --src with --ref, and --testset: the run's own sets have theirs")
    if options.name is not None:
        parser.error("--name is for --src with --ref, --testset and --hypotheses")
