"""The rounds of `training_speed`: contestants take turns on a workload, each run a process."""

import dataclasses
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import jax

from benchmarks.asked_process import AskedProcess, ProcessFailed
from benchmarks.first_step import command_seconds
from benchmarks.peer_environments import EnvironmentMissing, Environments
from benchmarks.training_contestants.contest import write_batches
from benchmarks.training_report import (
    Disqualified,
    Measured,
    check_parameters,
    line,
    without_paths,
    workload_metrics,
)
from benchmarks.training_workloads import Work, Workload, job_of, real, synthetic, work_of
from flaxformer_mt.model.parameters import count_by_formula

ROOT = Path(__file__).parent.parent
DTYPES = {False: "float32", True: "bfloat16"}  # by whether it is bfloat16
HERE = "here"  # the environment that this process runs in
# Whose matrix products are measured, and the environments that have them.
PACKAGES = {"jax": HERE, "torch": "torch"}
SECONDS = 1800.0  # for one answer: a contestant that takes longer has failed


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A file of `training_contestants` in an environment, with its settings."""

    module: str
    environment: str
    bfloat16: bool = False
    compiled: bool = False


@dataclasses.dataclass(frozen=True)
class Jobs:
    """Jobs for contestants, in files of a folder: their work, and the model's parameters."""

    work: Work
    parameters: int


def write_jobs(
    workload: Workload,
    folder: Path,
    contestants: Mapping[str, Contestant],
    *,
    tokens: int | None = None,
) -> Jobs:
    """The batches of a workload (or of so many target tokens), and a job for each contestant."""
    config = workload.load()
    vocabulary = config.data.vocabulary.size
    if workload.shape is not None:
        batches = synthetic(workload.shape, vocabulary, workload.steps)
    elif tokens is not None:
        batches, vocabulary = real(config, folder / "run", tokens=tokens)
    else:
        batches, vocabulary = real(config, folder / "run", steps=workload.steps)
    path = folder / "batches.npz"
    write_batches(path, [dataclasses.asdict(batch) for batch in batches])
    for name, contestant in contestants.items():
        job_of(
            workload,
            vocabulary,
            path,
            bfloat16=contestant.bfloat16,
            compiled=contestant.compiled,
        ).write(folder / f"{name}.json")
    parameters = sum(count_by_formula(config.model, vocabulary, vocabulary).values())
    return Jobs(work_of(config, vocabulary, batches), parameters)


def command_of(contestant: Contestant, environments: Environments, job: Path) -> list[str]:
    """The command line that starts a contestant. Raises EnvironmentMissing."""
    module = f"benchmarks.training_contestants.{contestant.module}"
    return [str(python_of(contestant.environment, environments)), "-m", module, str(job.resolve())]


def accelerator() -> str:
    """The device that contestants will find, "none" for a CPU; this process keeps off it from now.

    A process in which JAX has used a GPU holds most of its memory.
    """
    program = "import jax; d = jax.devices()[0]; print(d.platform, d.device_kind, sep='|')"
    command = [sys.executable, "-c", program]
    completed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=180)
    platform, _, kind = completed.stdout.strip().splitlines()[-1].partition("|")
    jax.config.update("jax_platforms", "cpu")
    return "none" if platform == "cpu" else kind


def python_of(environment: str, environments: Environments) -> Path:
    return Path(sys.executable) if environment == HERE else environments.python(environment)


class Contest:
    """The contestants of a machine, and the speed of its matrix products in `packages`."""

    def __init__(
        self,
        workdir: Path,
        environments: Environments,
        contestants: Mapping[str, Contestant],
        *,
        packages: Mapping[str, str] = PACKAGES,
        cold_starts: bool = True,
        seconds: float = math.inf,
    ) -> None:
        """Without `cold_starts` the first start, with an empty cache, is the first round's.

        After `seconds` whoever is at work is stopped, and the others have no turn.
        """
        self._workdir, self._environments = workdir, environments
        self._cold_starts, self._end = cold_starts, time.perf_counter() + seconds
        self._contestants, self._packages = contestants, dict(packages)
        self._ceilings: dict[tuple[str, str], list[float]] = {}

    def workload(
        self,
        name: str,
        workload: Workload,
        entered: Sequence[str],
        *,
        rounds: int,
        data: Path | None,
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Metrics and signatures of one workload; `entered` are contestants by name."""
        folder = self._workdir / name
        folder.mkdir(parents=True, exist_ok=True)
        if workload.shape is None:
            assert data is not None
            workload = workload.of_corpus(data)
        contestants = {contestant: self._contestants[contestant] for contestant in entered}
        jobs = write_jobs(workload, folder, contestants)
        work = jobs.work
        print(f"{name}: {work.steps} batches, {work.tgt_tokens:,} target tokens", flush=True)

        measured = self._rounds(contestants, folder, jobs.parameters, rounds)
        for contestant in entered:
            print(line(contestant, work, measured[contestant]), flush=True)
        metrics, signatures = workload_metrics(name, work, measured, self.ceilings())
        if workload.shape is None:
            command_metrics, command_signatures = _command_metrics(name, workload, folder)
            metrics |= command_metrics
            signatures |= command_signatures
        return metrics, signatures

    def _rounds(
        self, contestants: Mapping[str, Contestant], folder: Path, parameters: int, rounds: int
    ) -> dict[str, Measured]:
        """Round 0 is the cold start of each; the others begin with the matrix products."""
        measured = {
            name: Measured(bfloat16=contestant.bfloat16) for name, contestant in contestants.items()
        }
        for number in range(0 if self._cold_starts else 1, rounds + 1):
            if number:
                self.measure_ceilings({contestant.bfloat16 for contestant in contestants.values()})
            for name in contestants:
                if not measured[name].failure:
                    self._turn(name, measured[name], folder, parameters, alone=number == 0)
        return measured

    def _turn(
        self, name: str, measured: Measured, folder: Path, expected: int, *, alone: bool
    ) -> None:
        """One run of a contestant: the first step, and all batches unless that's to be `alone`."""
        contestant, cache = self._contestants[name], (folder / f"{name}-cache").resolve()
        cold = measured.cold_seconds is None
        if cold:
            shutil.rmtree(cache, ignore_errors=True)
        try:
            command = command_of(contestant, self._environments, folder / f"{name}.json")
            start = time.perf_counter()
            with AskedProcess(
                command,
                log=folder / f"{name}.log",
                folder=ROOT,
                environment=kept_in(cache),
            ) as process:
                ready = process.answer(seconds=self._left())
                first = time.perf_counter() - start
                check_parameters(name, ready["parameters"], expected)
                measured.setup, measured.parameters = ready["setup"], ready["parameters"]
                if cold:
                    measured.cold_seconds = first
                else:
                    measured.warm_seconds.append(first)
                if alone:
                    return
                process.ask("warm", seconds=self._left())
                answer = process.ask("run", seconds=self._left())
        except (ProcessFailed, EnvironmentMissing, Disqualified) as error:
            measured.failure = str(error)
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            return
        measured.run_seconds.append(answer["seconds"])
        measured.peak_bytes = max(measured.peak_bytes, answer["peak_bytes"])
        if answer["device_bytes"] is not None:
            measured.device_bytes = max(measured.device_bytes or 0, answer["device_bytes"])

    def _left(self) -> float:
        """Seconds for the next answer. Raises ProcessFailed."""
        remaining = self._end - time.perf_counter()
        if remaining <= 0:
            raise ProcessFailed("no time was left for it")
        return min(SECONDS, remaining)

    def measure_ceilings(self, bfloat16: Collection[bool]) -> None:
        """Measures matrix products of the installed packages, in the types that are used."""
        for package, environment in list(self._packages.items()):
            try:
                command = [str(python_of(environment, self._environments)), "-m"]
                command += ["benchmarks.training_contestants.ceiling", package]
                log = self._workdir / f"ceiling-{package}.log"
                with AskedProcess(command, log=log, folder=ROOT) as process:
                    for dtype in (DTYPES[is_bfloat16] for is_bfloat16 in sorted(bfloat16)):
                        answer = process.ask(dtype, seconds=self._left())
                        self._ceilings.setdefault((package, dtype), []).append(answer["flops"])
            except (ProcessFailed, EnvironmentMissing) as error:
                del self._packages[package]
                print(f"matrix products of {package}: {error}", file=sys.stderr, flush=True)

    def ceilings(self) -> dict[str, float]:
        """The FLOP/s of the better package by number type: the median of rounds."""
        ceilings: dict[str, float] = {}
        for (_, dtype), rounds in self._ceilings.items():
            ceilings[dtype] = max(ceilings.get(dtype, 0.0), statistics.median(rounds))
        return ceilings

    def ceiling_metrics(self) -> dict[str, float]:
        return {
            f"ceiling_{package}_{dtype}_gflops": statistics.median(rounds) / 1e9
            for (package, dtype), rounds in self._ceilings.items()
        }


def _command_metrics(
    name: str, workload: Workload, folder: Path
) -> tuple[dict[str, float], dict[str, str]]:
    """Metrics and signatures of the first step that a user of `train` waits for."""
    metrics: dict[str, float] = {}
    signatures: dict[str, str] = {}
    try:
        for state, seconds in command_seconds(workload, folder, seconds=SECONDS).items():
            metrics[f"{name}_train_command_{state}_first_step_seconds"] = seconds
    except ProcessFailed as error:
        metrics[f"{name}_train_command_failed"] = 1
        signatures[f"{name}_train_command_failed"] = without_paths(str(error))
    return metrics, signatures


def kept_in(cache: Path) -> dict[str, str]:
    """Settings by which JAX and PyTorch keep what they compile in this folder alone."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
    }
