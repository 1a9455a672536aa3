"""What `reproduce` does: rows run and compared, the report written, figures drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from flaxformer_mt.cli import train
from flaxformer_mt.cli.arguments import say
from flaxformer_mt.cli.pictures import make_folder
from flaxformer_mt.config import freeze
from flaxformer_mt.data.prepare import valid_text
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.figures.canvas import require_matplotlib
from flaxformer_mt.figures.statistics import pronouns_of
from flaxformer_mt.reproduction import report as page
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.ladder import Ending, Ladder
from flaxformer_mt.reproduction.orderings import done_rows, write_orderings
from flaxformer_mt.reproduction.other_text import SCORES, is_scored
from flaxformer_mt.reproduction.pictures import FIGURES, draw_attention, draw_formulas
from flaxformer_mt.reproduction.planned import is_plan
from flaxformer_mt.reproduction.records import read_records
from flaxformer_mt.reproduction.result_file import ResultError, read_result
from flaxformer_mt.reproduction.settings import Settings
from flaxformer_mt.reproduction.text import TEXTS
from flaxformer_mt.rundir.atomic import write_text
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.checkpoints import list_steps
from flaxformer_mt.rundir.layout import RunDirectory, open_run, read_record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Places:
    """Where runs are, and what is made of them."""

    workdir: Path
    results: Path
    report: Path
    plans: tuple[Path, ...]
    others: tuple[Path, ...]


def run(places: Places, experiments: Sequence[Experiment], command: Sequence[str]) -> int:
    """Does what is not done, compares, writes the report; returns the exit status."""
    # Here, as main imports the commands.
    from flaxformer_mt.cli.main import explained

    def trained(run: RunDirectory, changes: Sequence[str]) -> Ending:
        endings: dict[int, Ending] = {0: "finished", train.STOPPED: "stopped"}
        return endings[train.train_run(str(run), None, changes, command)]

    ladder = Ladder(
        workdir=places.workdir,
        results=places.results,
        train=trained,
        explain=lambda error: explained(error, "reproduce"),
        say=say,
        command=command,
    )
    make_folder(str(places.results))
    outcomes = ladder.climb(experiments)
    of_table = [one for one in experiments if one.row.table == "table3"]
    if of_table:
        # They differ in seeds alone, and all of these are compared.
        settings = of_table[0].settings
        scored = done_rows(settings, run_of=ladder.run_of, results=places.results)
        if write_orderings(scored, results=places.results) is None:
            say("no ordering to test yet: the base and another row of the same seed make one")
    report(places, check=False)
    for outcome in outcomes:
        print(f"{outcome.experiment.name}: {outcome.kind} {outcome.message}".rstrip())
    kinds = {outcome.kind for outcome in outcomes}
    return train.STOPPED if "stopped" in kinds else int("failed" in kinds)


def report(places: Places, *, check: bool) -> int:
    """Writes the report; with `check` nothing, and status 1 where the file says something else."""
    plans = [read_result(path) for path in places.plans]
    for path, plan in zip(places.plans, plans, strict=True):
        if not is_plan(plan):
            raise ResultError(f"{path}: has no steps of benchmarks.plan or benchmarks.plan_rows")
    others = [read_result(path) for path in places.others]
    for path, other in zip(places.others, others, strict=True):
        if not is_scored(other):
            raise ResultError(f"{path}: has none of the scores {', '.join(SCORES)}")
    text = page.report(read_records(places.results), plans, others)
    if not check:
        make_folder(str(places.report.parent))
        write_text(places.report, text)
        say(f"{places.report}: written from {places.results}")
        return 0
    if places.report.exists() and places.report.read_text(encoding="utf-8") == text:
        return 0
    say(f"{places.report}: is not what {places.results} gives: `reproduce report` writes it anew")
    return 1


def figures(places: Places, run_dir: str | None, *, dry_run: bool) -> int:
    """Draws the formulas, and figures 3 to 5 where there is a run; status 1 where there is none."""
    found = open_run(run_dir) if run_dir is not None else base_run(places.workdir)
    if dry_run:
        print("schedule, positions: formulas of the paper, no run needed")
        for search, name in FIGURES.items():
            print(f"{name}: {search}: {found or 'no run to draw it from: --run DIR'}")
        return 0
    require_matplotlib()
    folder = make_folder(str(places.workdir / "figures"))
    draw_formulas(folder, say=say)
    if found is None:
        say(
            f"figures 3 to 5 are not drawn: {places.workdir} has no run of Table 2's base, English "
            "to German: name a trained one with --run DIR"
        )
        return 1
    data = freeze(read_record(found).config, str(found.config_file)).data
    sources, _ = valid_text(local_copy(found.data))
    say(f"figures 3 to 5: {found}, validation sentences")
    missing = draw_attention(
        folder,
        Translator.load(found.path),
        sources,
        pronouns=pronouns_of(data.src_lang),
        say=say,
    )
    for name in missing:
        say(f"{name}: not drawn: no head does it on these sentences")
    return 0


def base_run(workdir: Path) -> RunDirectory | None:
    """Table 2's base from English to German, at full scale if it is there; the newest of several.

    None where no such run has a checkpoint yet.
    """
    runs = [RunDirectory(path) for path in (workdir / "runs").glob("table2_en_de_base_*")]
    trained = [run for run in runs if list_steps(run.checkpoints)]
    names = tuple(f"table2_en_de_base_{Settings(text=text).extent}_" for text in TEXTS)
    full = [run for run in trained if run.path.name.startswith(names)]
    return max(full or trained, key=lambda run: run.config_file.stat().st_mtime, default=None)
