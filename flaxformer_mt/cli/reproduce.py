"""`reproduce`: the rows of the paper's tables, its figures, and the report of what there is."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from flaxformer_mt.api import say
from flaxformer_mt.cli import train
from flaxformer_mt.cli.arguments import flags, make_parser, take_overrides
from flaxformer_mt.cli.pictures import make_folder
from flaxformer_mt.errors import STOPPED
from flaxformer_mt.figures.canvas import require_matplotlib
from flaxformer_mt.reproduction import report as page
from flaxformer_mt.reproduction.experiment import Experiment, resolve
from flaxformer_mt.reproduction.orderings import write_orderings
from flaxformer_mt.reproduction.paper import TABLES, RowError, rows_of
from flaxformer_mt.reproduction.planned import is_plan
from flaxformer_mt.reproduction.records import read_records
from flaxformer_mt.reproduction.result_file import ResultError, read_result
from flaxformer_mt.reproduction.settings import RULE, TEXTS, Corpus, Settings
from flaxformer_mt.rundir.layout import RunDirectory, open_run
from flaxformer_mt.rundir.paths import as_path, is_remote, write_text

_EPILOG = f"""Each row is prepared, trained, averaged where the paper averaged, and scored; a row
that is done is not done again, a stopped one goes on, a failed one is noted and the others go on.
--scale S is: {RULE} --config.a.b=VALUE changes the base that the rows are variations of: sizes of
a row keep their ratio to it. docs/reproducing.md has examples."""
_WHAT = {
    f"what {'|'.join(TABLES)}|figures|report": "a table's rows; figures 3 to 5, from a run; or the "
    "report of the results there are",
    "--workdir DIR": "runs, results, the report and figures are below it",
    "--dry-run": "list the rows, their state and cost, and end",
}
_ROWS = {"--only ROW...": "these rows alone", "--seeds N:int...": "a run for each (default: 1)"}
_TEXT = {
    f"--text {'|'.join(TEXTS)}": "the paper's text as files, or as TensorFlow Datasets has it "
    "(default: files)",
    "--folder DIR": "where the text is, if not where the configs have it; of tfds the prepared "
    "sets",
    "--corpus NAME": "other text than the paper's, by this name",
    "--train SRC TGT": "--corpus: its files in --folder",
    "--valid SRC TGT": "--corpus: its files in --folder",
    "--test SRC TGT": "--corpus: its files in --folder (Table 3 is scored on valid)",
}
_RESULTS = {
    "--results DIR": "result files (default: DIR/results)",
    "--report FILE": "default: DIR/reproduction.md",
    "--check": "report: write nothing, fail if it says otherwise",
}
_REPEATABLE = {
    "--plan FILE": "a result of benchmarks.plan or plan_rows, steps compiled for TPUs; may be "
    "repeated",
    "--also FILE": "a result of what was trained on other text, to stand after the rows; may be "
    "repeated",
}
_FIGURES = {"--run DIR": "a trained run (default: Table 2's base below --workdir)"}
_OF_TABLES = "scale only seeds text folder corpus train valid test".split()


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    rest, overrides = take_overrides(arguments)
    parser = make_parser(prog, purpose, _EPILOG)
    _add_arguments(parser)
    options = parser.parse_args(rest)
    _check(options, overrides, parser)
    workdir = Path(options.workdir)
    # By default they stand beside the runs.
    options.results = Path(options.results or workdir / "results")
    options.report = Path(options.report or workdir / "reproduction.md")
    if options.what == "report":
        return _report(options)
    if options.what == "figures":
        return _figures(workdir, options.run, dry_run=options.dry_run)
    experiments, refused = _experiments(options, overrides)
    for line in refused:
        say(line)
    if options.dry_run:
        from flaxformer_mt.reproduction.run_rows import listing

        print(listing(experiments, options.results))
        return 1 if refused else 0
    status = _run(options, experiments, [*prog.rsplit(" ", 1), *arguments])
    return status or (1 if refused else 0)


def _run(
    options: argparse.Namespace, experiments: Sequence[Experiment], command: Sequence[str]
) -> int:
    """Does what is not done, compares, writes the report; returns the exit status."""
    from flaxformer_mt.cli.main import explained  # which imports the commands
    from flaxformer_mt.reproduction.run_rows import Ending, Rows

    def trained(run: RunDirectory, changes: Sequence[str]) -> Ending:
        endings: dict[int, Ending] = {0: "finished", STOPPED: "stopped"}
        return endings[train.train_run(str(run), None, changes, command)]

    rows = Rows(
        workdir=Path(options.workdir),
        results=options.results,
        train=trained,
        explain=lambda error: explained(error, "reproduce"),
        say=say,
        command=command,
    )
    make_folder(str(options.results))
    outcomes = rows.run(experiments)
    of_table = [one for one in experiments if one.row.table == "table3"]
    if of_table:
        # They differ in seeds alone, and all of these are compared.
        settings, results = of_table[0].settings, options.results
        if write_orderings(settings, run_of=rows.run_of, results=results) is None:
            say("no ordering to test yet: the base and another row of the same seed make one")
    _report(options)
    for outcome in outcomes:
        print(f"{outcome.experiment.name}: {outcome.kind} {outcome.message}".rstrip())
    kinds = {outcome.kind for outcome in outcomes}
    return STOPPED if "stopped" in kinds else int("failed" in kinds)


def _report(options: argparse.Namespace) -> int:
    """Writes the report; with --check nothing, and status 1 where the file says something else."""
    plans, others = (
        [read_result(Path(p)) for p in paths] for paths in (options.plan, options.also)
    )
    for path, plan in zip(options.plan, plans, strict=True):
        if not is_plan(plan):
            raise ResultError(f"{path}: has no steps of benchmarks.plan or benchmarks.plan_rows")
    for path, other in zip(options.also, others, strict=True):
        if not page.SCORES.keys() & other.metrics:
            raise ResultError(f"{path}: has none of the scores {', '.join(page.SCORES)}")
    text, report = page.report(read_records(options.results), plans, others), options.report
    if not options.check:
        make_folder(str(report.parent))
        write_text(report, text)
        say(f"{report}: written from {options.results}")
    elif not report.exists() or report.read_text(encoding="utf-8") != text:
        say(f"{report}: is not what {options.results} gives: `reproduce report` writes it anew")
        return 1
    return 0


def _figures(workdir: Path, run_dir: str | None, *, dry_run: bool) -> int:
    """Draws the formulas, and figures 3 to 5 where there is a run; status 1 where there is none."""
    from flaxformer_mt.reproduction.pictures import FIGURES, base_run, draw_formulas, draw_run

    found = open_run(run_dir) if run_dir is not None else base_run(workdir)
    if dry_run:
        print("schedule, positions: formulas of the paper, no run needed")
        for search, name in FIGURES.items():
            print(f"{name}: {search}: {found or 'no run to draw it from: --run DIR'}")
        return 0
    require_matplotlib()
    folder = make_folder(str(workdir / "figures"))
    draw_formulas(folder, say=say)
    if found is None:
        say(
            f"figures 3 to 5 are not drawn: {workdir} has no run of Table 2's base, English "
            "to German: name a trained one with --run DIR"
        )
        return 1
    draw_run(folder, found, say=say)
    return 0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    flags(parser, _WHAT, workdir="runs/reproduction")
    group = parser.add_argument_group("rows")
    flags(group, _ROWS)
    group.add_argument(
        "--scale", type=float, metavar="S", help="a share of the paper's training (default: 1)"
    )
    flags(parser.add_argument_group("text"), _TEXT)
    results = parser.add_argument_group("results")
    flags(results, _RESULTS)
    flags(results, _REPEATABLE, repeatable=True)
    flags(parser.add_argument_group("figures"), _FIGURES)


def _check(
    options: argparse.Namespace, overrides: Sequence[str], parser: argparse.ArgumentParser
) -> None:
    """Nothing that was asked for is without effect."""
    given = [name for name in _OF_TABLES if getattr(options, name) is not None]
    if options.what not in TABLES and (given or overrides):
        flag = given[0] if given else f"config.{overrides[0].partition('=')[0]}"
        parser.error(f"--{flag} is for the rows of a table, not for {options.what}")
    if options.run is not None and options.what != "figures":
        parser.error(f"--run is for figures, not for {options.what}")
    if options.check and options.what != "report":
        parser.error(f"--check is for report, not for {options.what}")
    if options.dry_run and options.what == "report":
        parser.error("--dry-run: report runs nothing; --check writes nothing")
    for name in ("train", "valid"):
        if (options.corpus is None) != (getattr(options, name) is None):
            parser.error("--corpus NAME, --train SRC TGT and --valid SRC TGT go together")
    if options.corpus is None and options.test is not None:
        parser.error("--test goes with --corpus")
    places = [(name, getattr(options, name)) for name in ("workdir", "results", "report")]
    files = [(name, path) for name in ("plan", "also") for path in getattr(options, name)]
    for name, value in (*places, *files):
        if value is not None and is_remote(as_path(value)):
            parser.error(f"--{name} {value}: several runs share files below it: name a local place")


def _experiments(
    options: argparse.Namespace, overrides: Sequence[str]
) -> tuple[list[Experiment], list[str]]:
    """The rows that are meant, a row's seeds after each other; and why others cannot be stated."""
    corpus = None
    if options.corpus is not None:
        files = {part: tuple(getattr(options, part)) for part in ("train", "valid")}
        test = None if options.test is None else tuple(options.test)
        corpus = Corpus(name=options.corpus, test=test, **files)
    rows = rows_of(options.what, options.only or ())
    of_files = options.folder is not None and options.text != "tfds"
    if of_files and len({row.spec.partition(":")[0] for row in rows}) > 1:
        raise RowError(
            f"--folder {options.folder}: holds the text of one pair of languages, and these rows "
            f"are of two: choose some with --only ({', '.join(row.name for row in rows)})"
        )
    found, refused = [], []
    for row in rows:
        for seed in dict.fromkeys(options.seeds or (1,)):
            settings = Settings(
                scale=1.0 if options.scale is None else options.scale,
                seed=seed,
                text=options.text or "files",
                folder=options.folder,
                corpus=corpus,
                overrides=tuple(overrides),
            )
            try:
                found.append(resolve(row, settings))
            except RowError as error:
                refused.append(f"not run: {error}")
                break
    return found, refused
