"""One trial: trains a contestant for its time, translates, and records what came of it."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.own_data.corpora import CORPORA, Text, written
from benchmarks.own_data.peers import PEERS, Peer, progress
from benchmarks.own_data.queue_of_trials import Trial
from benchmarks.own_data.scoring import scores
from benchmarks.own_data.settings import SETTINGS
from benchmarks.own_data.timed import Clock, Spent, priority, timed
from benchmarks.peer_environments import Environments, files as requirements
from flaxformer_mt.reproduction.result_file import this_machine
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.layout import RunDirectory, read_status
from flaxformer_mt.rundir.paths import read_json, write_json
from flaxformer_mt.versions import git_commit, package_versions

ROOT = Path(__file__).parent.parent.parent
NO_CHECKPOINT = "no checkpoint"  # why a trial failed; its log.txt says more
FAILED = -1.0  # the dev score of a trial without outputs
_MARGIN = 5.0  # seconds before the end of a trial's time at which it is asked to save
_TRANSLATING = 7200.0  # seconds after which a translation has failed
EPOCH = 0.9  # of the pairs: a peer leaves out those that it finds too long


class Interrupted(Exception):
    """The trial was interrupted; its run has saved, and the same call continues it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Where the study works: its data, its folder, the peers' environments, and the clock."""

    data: Path
    workdir: Path
    environments: Environments
    clock: Clock

    def text(self, corpus: str) -> Text:
        return written(CORPORA[corpus], self.data, self.workdir / "text" / corpus)

    def record_file(self, trial: Trial) -> Path:
        return self.workdir / "trials" / f"{trial.name}.json"

    def outputs(self, trial: Trial) -> Path:
        """The folder of a trial's outputs, `dev.hyp` and `test.hyp`."""
        return self.workdir / "trials" / trial.name

    def run_folder(self, trial: Trial) -> Path:
        """Of the run that the trial trains: a setting's and a peer's serve for all times."""
        suffix = f"_{trial.minutes}" if trial.part == "ours" else ""
        return self.workdir / "runs" / trial.corpus / f"{trial.contestant}{suffix}"

    def records(self) -> dict[Trial, dict[str, Any]]:
        """What the trials that have ended recorded."""
        contents = [read_json(path) for path in sorted(self.workdir.glob("trials/*.json"))]
        return {
            Trial(content["corpus"], content["contestant"], content["minutes"]): content
            for content in contents
        }


def lines_of(path: Path) -> list[str]:
    """The lines of a file of outputs, of which the last may lack its end."""
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def dev_scores(records: Mapping[Trial, Mapping[str, Any]]) -> dict[Trial, float]:
    return {
        trial: FAILED if record["dev"] is None else record["dev"]["bleu"]
        for trial, record in records.items()
    }


def run_trial(study: Study, trial: Trial) -> dict[str, Any]:
    """Trains what is left of the trial's time, translates and records. Raises Interrupted,
    EnvironmentMissing, OSError and ValueError."""
    text, folder = study.text(trial.corpus), study.run_folder(trial)
    folder.mkdir(parents=True, exist_ok=True)
    contestant = contestant_of(trial, study)
    starts = _trained(study, trial, contestant, text)

    outputs = study.outputs(trial)
    outputs.mkdir(parents=True, exist_ok=True)
    failure = contestant.translate(text, folder, outputs)
    record = {
        **dataclasses.asdict(trial),
        "text": text.digest,
        **contestant.described(folder),
        "limited_by": study.clock,
        **dataclasses.asdict(sum((Spent(**start["spent"]) for start in starts), Spent())),
        "starts": starts,
        "dev": None,
        "failure": failure,
        "machine": dataclasses.asdict(this_machine("none")),
        "commit": git_commit(),
        "versions": package_versions(),
    }
    if failure is None:
        hypotheses = lines_of(outputs / "dev.hyp")
        scored = scores(text.lines("dev", 0), hypotheses, text.lines("dev", 1))
        record["dev"] = {**dataclasses.asdict(scored), "short_share": scored.short_share}
    write_json(study.record_file(trial), record)
    return record


def _trained(
    study: Study, trial: Trial, contestant: "Contestant", text: Text
) -> list[dict[str, Any]]:
    """Trains until the trial's time is up, over all its run's starts, and returns these.

    A start has spent what it had at its newest checkpoint: what came after is done anew.
    """
    folder = study.run_folder(trial)
    state = folder / "starts.json"
    starts: list[dict[str, Any]] = read_json(state) if state.exists() else []
    spent = sum((Spent(**start["spent"]) for start in starts), Spent())
    left = 60 * trial.minutes - _MARGIN - spent.by(study.clock)
    if left < _MARGIN or contestant.is_done(folder):
        return starts

    course = timed(
        contestant.command(text, folder, len(starts)),
        seconds=left,
        clock=study.clock,
        stop=contestant.stop,
        log=folder / "log.txt",
        folder=ROOT,
        environment={"JAX_COMPILATION_CACHE_DIR": str((folder / "compiled").resolve())},
        is_done=lambda: contestant.is_done(folder),
    )
    saved = contestant.saved(folder)
    saved_now = saved is not None and saved >= course.begin
    start = {
        "commit": git_commit(),
        "minutes": trial.minutes,
        "status": course.status,
        "spent": dataclasses.asdict(course.at(saved) if saved_now and saved else Spent()),
        "until_end": dataclasses.asdict(course.end),
    }
    starts.append(start)
    write_json(state, starts)
    if saved_now:
        # Where a peer had got to before: hundreds of megabytes.
        for number in range(len(starts) - 1):
            shutil.rmtree(folder / f"start-{number}", ignore_errors=True)
    if course.interrupted:
        raise Interrupted(trial.name)
    return starts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ours:
    """The config `files` with overrides. With `choose`, a setting of the search, which the study
    stops: weights are chosen by dev."""

    overrides: Mapping[str, Any]
    choose: bool
    clock: Clock
    stop: signal.Signals = signal.SIGTERM

    def command(self, text: Text, folder: Path, start: int) -> list[str]:
        del start
        pairs = {
            split: ",".join(str(text.path(split, side)) for side in (0, 1))
            for split in ("train", "dev")
        }
        settings = {"data.train": pairs["train"], "data.valid": pairs["dev"], **self.overrides}
        return [
            *(sys.executable, "-m", "flaxformer_mt", "train", "--config", "files"),
            *("--workdir", str(folder / "run")),
            *(f"--config.{key}={setting}" for key, setting in settings.items()),
        ]

    def is_done(self, folder: Path) -> bool:
        with contextlib.suppress(Exception):  # not created yet, or being written
            status = read_status(RunDirectory(folder / "run"))
            return status is not None and status.state == "finished"
        return False

    def saved(self, folder: Path) -> float | None:
        checkpoints = RunDirectory(folder / "run").checkpoints
        times = [(checkpoints / str(step)).stat().st_mtime for step in list_steps(checkpoints)]
        return max(times, default=None)

    def described(self, folder: Path) -> dict[str, Any]:
        """Its "config" is null if `train` failed before it wrote one."""
        run = RunDirectory(folder / "run")
        status = read_status(run)
        config = read_json(run.config_file)["config"] if run.config_file.exists() else None
        return {
            "steps": 0 if status is None else status.step,
            "epochs": None,
            "settings": dict(self.overrides),
            "config": config and {key: config[key] for key in ("model", "training", "decoding")},
        }

    def translate(self, text: Text, folder: Path, outputs: Path) -> str | None:
        if self.saved(folder) is None:
            return NO_CHECKPOINT
        module = "benchmarks.own_data.translations"
        words = [str(folder / "run"), str(text.folder), *text.corpus.languages, str(outputs)]
        command = [sys.executable, "-m", module, *words, *(["--choose"] if self.choose else [])]
        return _translated(command, folder / "translating.txt", self.clock)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfPeer:
    """A peer's config, in its environment."""

    peer: Peer
    python: Path
    clock: Clock
    pairs: int

    @property
    def stop(self) -> signal.Signals:
        return self.peer.stop

    def command(self, text: Text, folder: Path, start: int) -> list[str]:
        return self.peer.training_command(self.python, text, folder.resolve(), start)

    def is_done(self, folder: Path) -> bool:
        del folder
        return False

    def saved(self, folder: Path) -> float | None:
        newest = self.peer.newest(folder)
        return None if newest is None else newest.stat().st_mtime

    def described(self, folder: Path) -> dict[str, Any]:
        done = progress(folder)
        environment = self.peer.environment
        pins = [path.read_text("utf-8") for path, _ in requirements(environment)]
        return {
            "steps": done.steps,
            "epochs": done.sentences / self.pairs,
            "settings": {"model": self.peer.model, "training": self.peer.training},
            "requirements": [
                line for pin in pins for line in pin.splitlines() if not line.startswith("#")
            ],
        }

    def translate(self, text: Text, folder: Path, outputs: Path) -> str | None:
        if self.peer.newest(folder) is None:
            return NO_CHECKPOINT
        # Little is learned before: the outputs are long, and the cell doesn't count.
        has_epoch = progress(folder).sentences >= EPOCH * self.pairs
        splits = ("dev", "test") if has_epoch else ("dev",)
        failures = (self._translate_split(text, folder, outputs, split) for split in splits)
        return next((failure for failure in failures if failure is not None), None)

    def _translate_split(self, text: Text, folder: Path, outputs: Path, split: str) -> str | None:
        output = outputs / f"{split}.hyp"
        command = self.peer.translating_command(
            self.python, text, folder.resolve(), split, output.resolve()
        )
        # With two threads, PyTorch's spend their time waiting for each other on a busy machine.
        environment = {"OMP_NUM_THREADS": "1"}
        failure = _translated(command, folder / "translating.txt", self.clock, environment)
        if failure is not None:
            return failure
        if not output.exists():
            return f"no outputs for {split}"
        count, expected = len(lines_of(output)), len(text.lines(split, 0))
        return None if count == expected else f"{count} outputs for {expected} lines of {split}"


Contestant = Ours | OfPeer


def contestant_of(trial: Trial, study: Study) -> Contestant:
    """Raises EnvironmentMissing."""
    if trial.part == "ours":
        settings = {"training.minutes": trial.minutes}
        return Ours(overrides=settings, choose=False, clock=study.clock)
    if trial.part == "search":
        settings = SETTINGS[trial.contestant].overrides()
        return Ours(overrides=settings, choose=True, clock=study.clock)
    peer = next(peer for peer in PEERS if peer.name == trial.contestant)
    return OfPeer(
        peer=peer,
        python=study.environments.python(peer.environment),
        clock=study.clock,
        pairs=CORPORA[trial.corpus].pairs,
    )


def _translated(
    command: Sequence[str], log: Path, clock: Clock, environment: Mapping[str, str] | None = None
) -> str | None:
    """Runs a command that translates; returns why it failed."""
    with log.open("ab") as output:
        try:
            completed = subprocess.run(
                [*priority(clock), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                timeout=_TRANSLATING,
            )
        except subprocess.TimeoutExpired:
            return f"translating took more than {_TRANSLATING:,.0f} s"
    if completed.returncode == 0:
        return None
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"status {completed.returncode}"
