"""`reproduce`: the rows of the paper's tables, its figures, and a report of the results."""

import dataclasses
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import (
    Flag,
    flags,
    make_parser,
    positive,
    positive_number,
    utf8_text,
)
from flaxformer_mt.reproduction.experiment import Experiment, resolve
from flaxformer_mt.reproduction.paper import TABLES, Row, RowError, rows_of
from flaxformer_mt.reproduction.settings import RULE, TEXTS, Corpus, ReproductionSettings
from flaxformer_mt.rundir.paths import as_path, is_remote

_EPILOG = f"""Each row is prepared, trained, averaged where the paper averaged, and scored. Finished
rows are skipped, stopped rows resume, and a failed row doesn't stop the others. --scale S means:
{RULE} --config.a.b=VALUE changes the base model; a row's sizes keep their ratio to it.
docs/reproducing.md has examples."""
_WHAT = {
    "what": Flag(
        "a table's rows; figures 3 to 5, from a run; or a report of the results so far",
        choices=(*TABLES, "figures", "report"),
    ),
    "--workdir": Flag("folder for runs, results, the report and figures", takes="DIR"),
    "--dry-run": Flag(
        "only list the rows, their state, and their cost, also in hours on this machine"
    ),
}
_ROWS = {
    "--only": Flag("only these rows", takes="ROW", several=True, read=utf8_text),
    "--seeds": Flag("one run per seed (default: 1)", takes="N", several=True, read=positive),
    "--scale": Flag(
        "fraction of the paper's training (default: 1)", takes="S", read=positive_number
    ),
}
_TEXT = {
    "--text": Flag(
        "read the paper's text from files or from TensorFlow Datasets (default: files)",
        choices=TEXTS,
    ),
    "--folder": Flag(
        "folder of the text, or of prepared datasets for tfds (default: as in the configs)",
        takes="DIR",
    ),
    "--corpus": Flag("name for your own text instead of the paper's", takes="NAME", read=utf8_text),
    "--train": Flag("--corpus: its files in --folder", takes=("SRC", "TGT")),
    "--valid": Flag("--corpus: its files in --folder", takes=("SRC", "TGT")),
    "--test": Flag(
        "--corpus: its files in --folder (Table 3 is scored on valid)", takes=("SRC", "TGT")
    ),
}
_RESULTS = {
    "--results": Flag("folder of result files (default: DIR/results)", takes="DIR"),
    "--report": Flag("where to write the report (default: DIR/reproduction.md)", takes="FILE"),
    "--check": Flag("report: write nothing; fail if the report is out of date"),
}
_FIGURES = {
    "--run": Flag(
        "figures: a trained run (default: Table 2's base model in --workdir)", takes="DIR"
    )
}
_OF_TABLES = "scale only seeds text folder corpus train valid test".split()


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, _EPILOG, overridable=True)
    flags(parser, _WHAT, workdir="runs/reproduction")
    flags(parser.add_argument_group("rows"), _ROWS)
    flags(parser.add_argument_group("text"), _TEXT)
    flags(parser.add_argument_group("results"), _RESULTS)
    flags(parser.add_argument_group("figures"), _FIGURES)
    options = parser.parse_args(arguments)
    _check(options, parser)
    workdir = Path(options.workdir)
    options.results = Path(options.results or workdir / "results")
    options.report = Path(options.report or workdir / "reproduction.md")
    if options.what == "report":
        from flaxformer_mt.cli.actions.reproduction_report import write_report

        return write_report(options)

    experiments, refused = _experiments(options) if options.what in TABLES else ([], [])
    for line in refused:
        say(line)
    from flaxformer_mt.cli.actions import reproduce as action

    if options.what == "figures":
        return action.figures(workdir, options.run, dry_run=options.dry_run)
    if options.dry_run:
        action.list_rows(experiments, options.results)
        return 1 if refused else 0
    return action.run(options, experiments) or (1 if refused else 0)


def _check(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses flags that contradict each other, or that `what` has no use for."""
    of_tables = [name for name in _OF_TABLES if getattr(options, name) is not None]
    of_tables += [f"config.{override.partition('=')[0]}" for override in options.overrides]
    if options.what not in TABLES and of_tables:
        parser.error(f"--{of_tables[0]} is for a table's rows, not for {options.what}")
    for name, purpose in {"run": "figures", "check": "report"}.items():
        if getattr(options, name) and options.what != purpose:
            parser.error(f"--{name} is for {purpose}, not for {options.what}")
    if options.dry_run and options.what == "report":
        parser.error("--dry-run isn't for report: use --check, which writes nothing")
    _check_corpus(options, parser)
    _check_local(options, parser)


def _check_corpus(options: Namespace, parser: ArgumentParser) -> None:
    for name in ("train", "valid"):
        if (options.corpus is None) != (getattr(options, name) is None):
            parser.error("--corpus NAME, --train SRC TGT and --valid SRC TGT go together")
    if options.corpus is None and options.test is not None:
        parser.error("--test needs --corpus")


def _check_local(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses paths in a store."""
    for name in ("workdir", "results", "report"):
        path = getattr(options, name)
        if path is not None and is_remote(as_path(path)):
            parser.error(f"--{name} {path}: use a local folder; several runs share its files")


def _experiments(options: Namespace) -> tuple[list[Experiment], list[str]]:
    """The experiments of the chosen rows, and a message for each row that can't be run."""
    settings = ReproductionSettings(
        scale=options.scale or 1.0,
        text=options.text or "files",
        folder=options.folder,
        corpus=_corpus(options),
        overrides=tuple(options.overrides),
    )
    rows = rows_of(options.what, options.only or ())
    _check_folder(options, rows)

    experiments, refused = [], []
    for row in rows:
        for seed in dict.fromkeys(options.seeds or (1,)):
            try:
                experiments.append(resolve(row, dataclasses.replace(settings, seed=seed)))
            except RowError as error:
                refused.append(f"not run: {error}")
                break
    return experiments, refused


def _corpus(options: Namespace) -> Corpus | None:
    if options.corpus is None:
        return None
    parts = {part: getattr(options, part) for part in ("train", "valid", "test")}
    files = {part: tuple(pair) for part, pair in parts.items() if pair}
    return Corpus(name=options.corpus, **files)


def _check_folder(options: Namespace, rows: Sequence[Row]) -> None:
    """Raises RowError if rows of several language pairs would read one folder's files."""
    if options.folder is None or options.text == "tfds":
        return
    if len({row.spec.partition(":")[0] for row in rows}) > 1:
        names = ", ".join(row.name for row in rows)
        raise RowError(
            f"--folder {options.folder}: holds one language pair, but these rows have two: choose "
            f"rows with --only ({names})"
        )
