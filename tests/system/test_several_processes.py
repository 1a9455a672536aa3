"""Two and four processes train, validate, save, stop and die as one. Gloo carries their numbers."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.cli.main import main
from flaxformer_mt.cli.train import train_run
from flaxformer_mt.parallel.processes import DIED, MISSING
from flaxformer_mt.rehearsal import rehearsed
from flaxformer_mt.rundir import checkpoint_format
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.layout import open_run, read_status
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.training.telemetry import TIMES
from tests.conftest import ROOT, WARNINGS, environment
from tests.system.conftest import run_program, tiny, wait_until

pytestmark = pytest.mark.timeout(1800)
STEPS, HEARTBEAT, PATIENCE = 10, 10, 500  # the last two in seconds
MORE = "training.steps=30"
SETTINGS = {
    "training.seed": 9,  # whose outputs score, and no better after step 10 than after 5
    "training.steps": STEPS,
    "training.validate_every": 5,
    "training.save_every": 5,
    "training.keep_for_average": 20,
    "training.schedule.warmup_steps": 10,
    "data.batch.max_shapes": 1,
}
FSDP = ["mesh.data=1", "mesh.fsdp=-1"]  # every array is split over all devices
TENSOR = ["mesh.data=2", "mesh.tensor=2"]  # two processes share the rows of a batch


@dataclasses.dataclass
class Runs:
    """Where the runs are, and what each process of the groups has answered."""

    folder: Path
    config: str
    overrides: list[str]

    def __getitem__(self, name: str) -> Path:
        return self.folder / name

    def job(self, name: str, *changes: str, **more: Any) -> dict[str, Any]:
        overrides = [*self.overrides, *changes]
        return {"workdir": str(self[name]), "config": self.config, "overrides": overrides, **more}

    def copy(self, name: str, origin: str, *, until: int) -> None:
        """The run `origin` as it was after step `until`."""
        shutil.copytree(self[origin], self[name])
        for step in list_steps(self[name] / "checkpoints"):
            if step > until:
                shutil.rmtree(self[name] / "checkpoints" / str(step))
        status = {"state": "stopped", "step": until, "reason": ""}
        (self[name] / "status.json").write_text(json.dumps(status))


class Group:
    """`program` in several processes; COORDINATOR, COUNT and NUMBER in it are filled in.

    As tasks of a job of Slurm's, which JAX recognises, they have no coordinator to name.
    """

    def __init__(
        self, folder: Path, count: int, program: Sequence[str], *, job: bool = False
    ) -> None:
        folder.mkdir()
        self.files = [folder / f"{number}.txt" for number in range(count)]
        self.processes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for number, file in enumerate(self.files):
            place = "" if job else f"127.0.0.1:{port}"
            placeholders = {"COORDINATOR": place, "COUNT": str(count), "NUMBER": str(number)}
            task = {"JOB_ID": 1, "STEP_NODELIST": "127.0.0.1", "NTASKS": count}
            task |= {"PROCID": number, "LOCALID": number}
            variables = {f"SLURM_{name}": str(value) for name, value in task.items()} if job else {}
            with file.open("w") as stream:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        *WARNINGS,
                        *(placeholders.get(word, word) for word in program),
                    ],
                    cwd=ROOT,
                    env=environment(JAX_COORDINATOR_PORT=str(port), **variables),
                    stdout=subprocess.DEVNULL,  # where Gloo greets
                    stderr=stream,
                )
            self.processes.append(process)

    @classmethod
    def of_command(cls, folder: Path, *arguments: str, count: int = 2) -> Group:
        """Processes that run a command of the program."""
        who = ("--coordinator", "COORDINATOR", "--num-processes", "COUNT", "--process-id", "NUMBER")
        return cls(folder, count, ["-m", "flaxformer_mt.cli.main", *arguments, *who])

    def said(self) -> list[str]:
        return [file.read_text() for file in self.files]

    def end(self) -> list[int]:
        """Exit statuses, after all have ended."""
        try:
            return [process.wait(timeout=PATIENCE) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()


@dataclasses.dataclass
class Answers:
    by_process: list[list[Any]]  # one answer a job
    said: list[str]


def begun(
    runs: Runs, name: str, count: int, jobs: Sequence[dict[str, Any]], *, job: bool = False
) -> tuple[Group, Path]:
    """The processes that work the jobs off, and where they write their answers."""
    answers = runs[f"answers {name}"]
    answers.mkdir()
    (answers / "plan.json").write_text(json.dumps(jobs))
    program = ["-m", "tests.system.on_several_processes", "COORDINATOR", "COUNT", "NUMBER"]
    program += [str(answers / "plan.json"), str(answers)]
    return Group(answers / "said", count, program, job=job), answers


def work_off(runs: Runs, name: str, count: int, jobs: Sequence[dict[str, Any]]) -> Answers:
    group, answers = begun(runs, name, count, jobs)
    assert group.end() == [0] * count, "\n".join(group.said())
    by_process = [json.loads((answers / f"{number}.json").read_text()) for number in range(count)]
    return Answers(by_process, group.said())


@pytest.fixture(scope="module")
def runs(tmp_path_factory, corpus) -> Runs:
    arguments = tiny(corpus) + [f"--config.{key}={value}" for key, value in SETTINGS.items()]
    overrides = [word.removeprefix("--config.") for word in arguments[2:]]
    return Runs(tmp_path_factory.mktemp("several"), arguments[1], overrides)


@pytest.fixture(scope="module")
def one(runs) -> Path:
    """The run of a single process with one device."""
    assert train_run(str(runs["one"]), runs.config, runs.overrides, ["a test"]) == 0
    return runs["one"]


@pytest.fixture(scope="module")
def two(runs) -> Answers:
    """Two processes, each with its device, as JAX's CPU backend needs it."""
    jobs = [{"workdir": None}, runs.job("undisturbed", *FSDP, profile=[2, 3])]
    return work_off(runs, "of two", 2, jobs)


@pytest.fixture(scope="module")
def four(runs, two) -> Answers:
    """Four processes, on a run of two whose newest checkpoint is damaged."""
    runs.copy("on four", "undisturbed", until=10)
    params = runs["on four"] / "checkpoints" / "10" / "params"
    shards = (params / "ocdbt.process_1" / "d").iterdir()
    largest = max(shards, key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:100])
    return work_off(runs, "of four", 4, [{"workdir": None}, runs.job("on four", *TENSOR)])


def reports(run: Path) -> list[dict[str, Any]]:
    lines = read_metrics(run / "metrics.jsonl")
    return [{key: line[key] for key in line if key not in TIMES} for line in lines]


def assert_equal_reports(ours: Path, theirs: Path) -> None:
    """Losses and scores to rounding; what counts batches and tokens exactly."""
    for our_line, their_line in zip(reports(ours), reports(theirs), strict=True):
        exact = {"kind", "step", "epoch", "padding", "skipped"} & our_line.keys()
        assert {key: our_line.pop(key) for key in exact} == {
            key: their_line.pop(key) for key in exact
        }
        for line in (our_line, their_line):  # of which the perplexity is the exponential
            line.update(nll=math.log(line.pop("perplexity")))
            if "source_gain" in line:  # a difference of two losses, each of which is compared
                line["exchanged"] = line["loss"] + line.pop("source_gain")
        assert our_line == pytest.approx(their_line, rel=1e-6)


def digests(run: Path, step: int) -> dict[str, Any]:
    return checkpoint_format.read_meta(run / "checkpoints" / str(step))["leaves"]


def test_two_equal_one(runs, one, two):
    assert [answers[1] for answers in two.by_process] == [0, 0]
    assert_equal_reports(runs["undisturbed"], one)
    scores = [line for line in reports(runs["undisturbed"]) if line["kind"] == "valid"]
    assert len(scores) == 2 and all(line["chrf"] > 0 for line in scores)
    for step in (5, STEPS):
        ours, theirs = (run / "samples" / f"step-{step}.txt" for run in (runs["undisturbed"], one))
        assert ours.read_text() == theirs.read_text()


def test_the_first_of_two_traces_and_counts_for_all(runs, two):
    assert len(list(runs["undisturbed"].glob("profile/**/*.xplane.pb"))) == 1
    assert f"finished at step {STEPS}" in two.said[0]
    assert "trace of steps 2 to 3 written" in two.said[0] and two.said[1:] == [""]
    assert json.loads((runs["undisturbed"] / "goodput.json").read_text())["step"] == STEPS


@pytest.mark.parametrize("group", ["two", pytest.param("four", marks=pytest.mark.extended)])
def test_what_they_tell_each_other(request, group):
    by_process = request.getfixturevalue(group).by_process
    for number, answers in enumerate(by_process):
        exchanged = answers[0]
        assert exchanged["first"] == {"of": 0, "value": 0.1}
        assert exchanged["failure"] == (
            "ProcessError: the first process has failed: no such thing"
            if number
            else "LookupError: no such thing\nand more"
        )
        assert exchanged["gathered"] == ([3_000_001] * len(by_process) if number == 0 else [])
        assert exchanged["largest"] == [0, len(by_process) - 1, 10, 0]


@pytest.mark.extended
def test_tasks_of_a_job_find_each_other_and_one_that_fails_takes_the_other_along(runs):
    """The second fails, while the first waits for it."""
    group, answers = begun(runs, "of a job", 2, [{"workdir": None}, {"fails": 1}], job=True)
    first, second = group.end()
    assert first not in (0, 75) and second == 1, group.said()
    assert "process 1 of 2 has failed: LookupError" in group.said()[1]
    assert len(list(answers.glob("[01].json"))) == 2


@dataclasses.dataclass
class Disturbed:
    """A run of two processes of which process 1 was killed, and the runs that were resumed then."""

    statuses: list[int]
    killed_said: list[str]
    answers: Answers


@pytest.fixture(scope="module")
def disturbed(runs, one, two) -> Disturbed:
    """Process 1 is killed; the run resumes, is stopped by SIGTERM, and resumes to its end."""
    settings = (*runs.overrides, *FSDP, "training.steps=100000")
    train = ("train", "--workdir", str(runs["disturbed"]), "--config", runs.config)
    arguments = [*train, *(f"--config.{setting}" for setting in settings)]
    group = Group.of_command(runs["killed"], *arguments, "--heartbeat", str(HEARTBEAT))
    try:
        wait_until((runs["disturbed"] / "checkpoints" / "5").exists, *group.processes)
        group.processes[1].kill()
    finally:
        statuses = group.end()

    runs.copy("from one", "one", until=5)
    runs.copy("longer", "undisturbed", until=STEPS)
    newest = max(list_steps(runs["disturbed"] / "checkpoints"))
    jobs = [
        runs.job("disturbed", *FSDP, MORE, stop_process=1, stop_after=newest + 5),
        runs.job("disturbed", *FSDP, MORE),
        runs.job("longer", *FSDP, MORE),
        runs.job("from one", *FSDP),
        runs.job("undisturbed", *FSDP),
    ]
    return Disturbed(statuses, group.said(), work_off(runs, "going on", 2, jobs))


@pytest.mark.extended
def test_a_killed_process_ends_the_other(disturbed):
    statuses = disturbed.statuses
    assert statuses[1] == -signal.SIGKILL and statuses[0] not in (0, 75), disturbed.killed_said


@pytest.mark.extended
def test_a_stop_of_one_process_is_a_stop_of_all(disturbed):
    assert disturbed.answers.by_process == [[75, 0, 0, 0, 0]] * 2
    first, second = disturbed.answers.said
    assert second.strip() == "SIGTERM: stopping after this step"
    assert "SIGTERM received by process 1" in first


@pytest.mark.extended
def test_kills_and_stops_leave_no_trace(runs, disturbed):
    """State and log are bit-equal to an undisturbed run's."""
    account = json.loads((runs["disturbed"] / "goodput.json").read_text())
    assert (account["starts"], account["step"]) == (3, 30)
    assert digests(runs["disturbed"], 30) == digests(runs["longer"], 30)
    assert reports(runs["disturbed"]) == reports(runs["longer"])


@pytest.mark.extended
def test_two_processes_resume_what_one_has_saved(runs, one, disturbed):
    assert "resuming after step 5" in disturbed.answers.said[0]
    assert_equal_reports(runs["from one"], one)


@pytest.mark.extended
def test_a_finished_run_is_finished_for_all(runs, disturbed):
    assert "nothing to do" in disturbed.answers.said[0]
    status = read_status(open_run(runs["undisturbed"]))
    assert status is not None and (status.state, status.step) == ("finished", STEPS)


@pytest.mark.extended
def test_two_start_from_another_run_as_one(runs, one):
    """Every array is split over both, with its moments, or beside its adapters."""
    starts = {
        "kept": ("training.keep_moments=true", "training.optimizer.ema_decay=0.9"),
        "adapted": ("training.adapters.rank=2",),
    }
    short = ("training.steps=3", "training.validate_every=3")
    jobs = [
        runs.job(f"{name} by two", *FSDP, *short, *changes, init_from=str(one))
        for name, changes in starts.items()
    ]
    assert work_off(runs, "of starts", 2, jobs).by_process == [[0, 0]] * 2
    for name, changes in starts.items():
        alone = str(runs[f"{name} by one"])
        overrides = [*runs.overrides, *short, *changes]
        assert train_run(alone, runs.config, overrides, ["a test"], str(one)) == 0
        assert_equal_reports(runs[f"{name} by two"], runs[f"{name} by one"])


@pytest.mark.extended
def test_two_evaluate_as_one(runs, two):
    """Each translates half of the sentences; the first scores all."""
    run = open_run(runs["undisturbed"])
    evaluate = ["evaluate", "--workdir", str(run.path), "--set", "valid"]
    group = Group.of_command(runs["evaluated"], *evaluate)
    assert group.end() == [0, 0], group.said()
    assert "lines in" in group.said()[0] and group.said()[1] == ""
    by_two = {file.name: file.read_text() for file in run.evaluation.glob("valid.*")}
    assert main(evaluate) == 0
    by_one = {file.name: file.read_text() for file in run.evaluation.glob("valid.*")}
    assert by_two["valid.hyp.txt"] == by_one["valid.hyp.txt"]
    scores, expected = (json.loads(files["valid.json"]) for files in (by_two, by_one))
    # The first one has chosen for all, and what one process would have.
    # Both have a BLEU of 0, so the loss decides.
    assert scores["weights"] == "best, step 10"
    assert scores | {"seconds": 0} == expected | {"seconds": 0}


@pytest.mark.extended
def test_four_go_on_with_the_newest_whole_step_of_two(runs, one, four):
    assert [answers[1] for answers in four.by_process] == [0] * 4
    assert "set aside as damaged-10, going back to step 5" in four.said[0]
    assert four.said[1:] == [""] * 3
    assert_equal_reports(runs["on four"], one)


@pytest.mark.extended
def test_a_host_that_is_lost_ends_the_rehearsal_of_the_others(runs):
    """As a preempted machine that has no time to say so."""
    place = runs["rehearsed"]
    overrides = [f"--config.{override}" for override in runs.overrides]
    training = ["doctor", "--stage", "train", "--json", "--config", runs.config, *overrides]
    waiting = ["--workdir", str(place), "--heartbeat", str(HEARTBEAT)]
    group = Group.of_command(runs["rehearsal"], *training, *waiting, count=4)
    try:
        wait_until((place / "tpu-hour" / "run" / "config.json").exists, *group.processes)
        group.processes[3].kill()
    finally:
        *others, lost = group.end()
    assert lost == -signal.SIGKILL and 0 not in others
    assert all(DIED in said for said in group.said()[:3])


@pytest.mark.extended
def test_two_hosts_rehearse_as_one_by_a_plan_that_only_the_first_has(runs):
    """Both stop at the plan of a step that doesn't fit."""
    place = runs["planned"]
    place.mkdir()
    plan = dict.fromkeys(rehearsed._KEYS, 1) | {"fits": False}
    (place / "plan.json").write_text(json.dumps(plan))
    overrides = [f"--config.{override}" for override in runs.overrides]
    where = ["--config", runs.config, *overrides, "--workdir", str(place)]
    hour = ["doctor", "--tpu-hour", "--only", "steps", *where, "--heartbeat", str(HEARTBEAT)]
    group = Group.of_command(runs["hour"], *hour, "--plan", str(place / "plan.json"))
    assert group.end() == [2, 2]
    first, second = group.said()
    assert "machine: passed" in first and "machine: passed" in second
    assert "does not fit" in first and "steps: failed" in second


@pytest.mark.extended
def test_a_host_that_does_not_come_is_named_as_the_reason(runs):
    alone = ["--coordinator", "localhost:45678", "--num-processes", "2", "--process-id", "0"]
    ended = run_program("doctor", *alone, "--join-within", "3")
    assert ended.returncode != 0
    assert f"{MISSING} within 3 s (--join-within)" in ended.stderr
