"""The rows and figures of `reproduce`."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from flaxformer_mt.api import say
from flaxformer_mt.cli import train
from flaxformer_mt.cli.actions.figures import make_folder
from flaxformer_mt.cli.actions.reproduction_report import write_report
from flaxformer_mt.cli.main import user_message
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.errors import STOPPED
from flaxformer_mt.figures.canvas import require_matplotlib
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.orderings import write_orderings
from flaxformer_mt.reproduction.pictures import FIGURES, base_run, draw_formulas, draw_run
from flaxformer_mt.reproduction.rate import measured_rate
from flaxformer_mt.reproduction.run_rows import Ending, RowRunner, first_left, listing
from flaxformer_mt.rundir.layout import RunDirectory, open_run
from flaxformer_mt.rundir.paths import check_output
from flaxformer_mt.training.try_step import TrialError


def list_rows(experiments: Sequence[Experiment], results: Path) -> None:
    """Prints all rows, and the hours that those still to do take here."""
    rate = None
    if left := first_left(experiments, results):
        keep_programs()
        try:
            rate = measured_rate(left.config, left.row.name)
        except TrialError as error:
            say(f"{left.row.name}: its hours here can't be estimated: {error}")
    print(listing(experiments, results, rate=rate))


def run(options: Namespace, experiments: Sequence[Experiment]) -> int:
    """Trains and scores the rows that are left; returns the exit status."""

    def trained(run: RunDirectory, changes: Sequence[str]) -> Ending:
        endings: dict[int, Ending] = {0: "finished", STOPPED: "stopped"}
        return endings[train.train_run(str(run), None, changes, options.command)]

    rows = RowRunner(
        workdir=Path(options.workdir),
        results=options.results,
        train=trained,
        explain=lambda error: user_message(error, "reproduce"),
        say=say,
        command=options.command,
    )
    make_folder(str(options.results))
    check_output(str(make_folder(str(options.report.parent)) / options.report.name))
    keep_programs()

    outcomes = rows.run(experiments)
    of_table = [experiment for experiment in experiments if experiment.row.table == "table3"]
    if of_table:
        # They differ only in seeds, all of which are compared.
        settings = of_table[0].settings
        if write_orderings(settings, run_of=rows.run_of, results=options.results) is None:
            say("nothing to compare: needs the base, a row with its seed, and a run of either")
    write_report(options)
    for outcome in outcomes:
        print(f"{outcome.experiment.name}: {outcome.kind} {outcome.message}".rstrip())
    kinds = {outcome.kind for outcome in outcomes}
    return STOPPED if "stopped" in kinds else int("failed" in kinds)


def figures(workdir: Path, run_dir: str | None, *, dry_run: bool) -> int:
    """Draws the paper's figures; returns the exit status."""
    run = open_run(run_dir) if run_dir is not None else base_run(workdir)
    if dry_run:
        print("schedule, positions: the paper's formulas; no run needed")
        for search, name in FIGURES.items():
            print(f"{name}: {search}: {run or 'no run to draw it from: give --run DIR'}")
        return 0
    require_matplotlib()
    folder = make_folder(str(workdir / "figures"))
    draw_formulas(folder, say=say)
    if run is None:
        say(f"figures 3 to 5 not drawn: {workdir} has no base run: give one with --run DIR")
        return 1
    draw_run(folder, run, say=say)
    return 0
