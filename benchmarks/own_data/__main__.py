"""The command: plans the study, works through its queue, and records what there is."""

import argparse
import contextlib
import json
import math
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.own_data.chart import chart
from benchmarks.own_data.queue_of_trials import PARTS, Part, Trial, eliminated, pending, plan
from benchmarks.own_data.record import (
    CELLS,
    chosen,
    details,
    judged,
    metrics,
    signatures,
    write_trials,
)
from benchmarks.own_data.trial import (
    ROOT,
    Interrupted,
    Study,
    dev_scores,
    lines_of,
    run_trial,
)
from benchmarks.peer_environments import EnvironmentMissing, Environments
from flaxformer_mt.errors import STOPPED
from flaxformer_mt.figures.canvas import rendered
from flaxformer_mt.reproduction.result_file import this_machine, write_result

PICTURE = ROOT / "docs" / "own_data.svg"
# `files` plans its minutes by timing steps, and PyTorch's threads use up CPU seconds while they
# wait for each other: beside other work both would get less than their time.
PARTS_AT_IDLE_PRIORITY: tuple[Part, ...] = ("search",)
# A trial of so many minutes takes about so much longer, with translation.
_TRANSLATING = 1.15


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    study = Study(
        data=options.data.resolve(),
        workdir=options.workdir.resolve(),
        environments=_environments(options),
        clock="cpu" if options.idle else "wall",
    )
    if options.record:
        return record(study, options.result, options.picture)
    if options.plan:
        print("\n".join(plan(dev_scores(study.records()))))
        return 0
    return work(study, hours=options.next, parts=options.only)


def work(study: Study, *, hours: float, parts: Sequence[Part] = PARTS) -> int:
    """Runs trials of these parts that fit into the hours, in order. SIGINT and SIGTERM interrupt a
    trial."""
    end = time.monotonic() + 3600 * hours
    skipped: set[Trial] = set()
    try:
        with _interruptible():
            while (trial := _next(_possible(study, skipped, parts), end)) is not None:
                try:
                    _run(study, trial)
                except EnvironmentMissing as error:
                    say(f"{trial.name}: {error}")
                    skipped.add(trial)
    except (KeyboardInterrupt, Interrupted):
        say("interrupted: the same command continues")
        return STOPPED
    say(_why_ended(study, skipped, parts))
    return 0


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Lets both signals raise KeyboardInterrupt: a shell's background commands ignore SIGINT."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    former = {kind: signal.signal(kind, signal.default_int_handler) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in former.items():
            signal.signal(kind, handler)


def _run(study: Study, trial: Trial) -> None:
    """Runs a trial, and deletes the runs of settings that it has eliminated."""
    say(f"{trial.name}: begins")
    content = run_trial(study, trial)
    outcome = content["failure"] or f"dev BLEU {content['dev']['bleu']:.2f}"
    say(
        f"{trial.name}: {outcome}; {content['steps']:,} steps, "
        f"{content['seconds']:,.0f} s, {content['cpu_seconds']:,.0f} CPU s"
    )
    for loser in eliminated(dev_scores(study.records())):
        shutil.rmtree(study.run_folder(loser), ignore_errors=True)


def _next(possible: Sequence[Trial], end: float) -> Trial | None:
    """The first trial, if there is time for it."""
    if not possible:
        return None
    trial = possible[0]
    seconds = 60 * (trial.minutes - trial.earlier) * _TRANSLATING
    return trial if time.monotonic() + seconds <= end else None


def _possible(study: Study, skipped: set[Trial], parts: Sequence[Part]) -> list[Trial]:
    """The trials that are left and that this call may run."""
    return [trial for trial in _all(study) if trial not in skipped and trial.part in parts]


def _all(study: Study) -> list[Trial]:
    return list(pending(dev_scores(study.records())))


def _why_ended(study: Study, skipped: set[Trial], parts: Sequence[Part]) -> str:
    if _possible(study, skipped, parts):
        return "nothing more fits into the time"
    if skipped:
        return f"skipped trials whose environment is missing: {len(skipped)}"
    if _all(study):
        return f"no trials are left of: {', '.join(parts)}"
    return "all trials have ended"


def record(study: Study, results: Path, picture: Path) -> int:
    """Scores the test sets of the cells so far, and writes the result, all trials and the chart."""
    records = study.records()
    cells = []
    for cell in CELLS:
        who = chosen(cell, records)
        trials = [trial for trial in (who.ours, who.own_best, who.best_peer) if trial is not None]
        outputs = {trial: lines_of(study.outputs(trial) / "test.hyp") for trial in trials}
        sources, references = [], []
        if trials:
            text = study.text(cell.corpus)
            sources, references = text.lines("test", 0), text.lines("test", 1)
        cells.append(judged(cell, who, outputs, sources, references))
    figures = metrics(cells)
    result = write_result(
        results / "own_data.json",
        command="python -m benchmarks.own_data --data FOLDER --workdir DIR --record",
        config="files",
        seconds=sum(content["seconds"] for content in records.values()),
        metrics=figures,
        signatures=signatures(figures),
        details=details(cells, records),
        hypotheses={
            f"{cell.cell.name}.{name}": lines
            for cell in cells
            for name, lines in cell.hypotheses.items()
        },
        machine=this_machine("none"),
    )
    write_trials(results / "own_data.trials.jsonl", records)
    picture.write_bytes(rendered(chart(cells), "svg"))
    print(json.dumps(dict(result.metrics), indent=2))
    print(f"missing: {result.details['missing']}")
    return 0


def say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_data")
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--plan", action="store_true", help="print what is left, with its hours")
    task.add_argument("--next", type=float, metavar="HOURS", help="work for at most these")
    task.add_argument("--record", action="store_true", help="score the test sets, and record")
    parser.add_argument(
        "--idle", action="store_true",
        help="run at idle priority; a trial's limit is then its CPU seconds, not the wall clock's",
    )  # fmt: skip
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, metavar="PART",
        help=f"work on these parts ({', '.join(PARTS)}); with --idle: search",
    )  # fmt: skip
    parser.add_argument("--install", action="store_true", help="make environments that are missing")
    parser.add_argument(
        "--python", nargs="+", default=[], metavar="ENVIRONMENT=PYTHON",
        help="interpreters of environments that are there: joeynmt, eole",
    )  # fmt: skip
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    parser.add_argument("--picture", type=Path, default=PICTURE, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.next is not None and not 0 < options.next < math.inf:
        parser.error("--next: hours must be positive")
    options.only = options.only or (PARTS_AT_IDLE_PRIORITY if options.idle else PARTS)
    if options.idle and set(options.only) != set(PARTS_AT_IDLE_PRIORITY):
        parser.error("--idle works on the search; the other parts need the machine for themselves")
    wrong = [name for name in options.python if "=" not in name]
    if wrong:
        parser.error(f"--python {wrong[0]}: write ENVIRONMENT=PYTHON")
    return options


def _environments(options: argparse.Namespace) -> Environments:
    named = [assignment.partition("=") for assignment in options.python]
    return Environments(
        options.workdir / "environments",
        install=options.install,
        present={name: Path(path).absolute() for name, _, path in named},
    )


if __name__ == "__main__":
    sys.exit(main())
