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
SECONDS = 1800.0  # for any one answer: what takes longer has failed


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A file of `training_contestants` in an environment, with its settings."""

    module: str
    environment: str
    bfloat16: bool = False
    compiled: bool = False


@dataclasses.dataclass(frozen=True)
class Jobs:
    """What files in a folder ask contestants to do: the work, and the parameters of the model."""

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
    """What starts a contestant. Raises EnvironmentMissing."""
    module = f"benchmarks.training_contestants.{contestant.module}"
    return [str(python_of(contestant.environment, environments)), "-m", module, str(job.resolve())]


def accelerator() -> str:
    """The device that contestants will find, "none" for a CPU; this process keeps off it from now.

    A process that has once asked JAX for a GPU holds most of its memory.
    """
    program = "import jax; d = jax.devices()[0]; print(d.platform, d.device_kind, sep='|')"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=180)
    platform, _, kind = done.stdout.strip().splitlines()[-1].partition("|")
    jax.config.update("jax_platforms", "cpu")
    return "none" if platform == "cpu" else kind


def python_of(environment: str, environments: Environments) -> Path:
    return Path(sys.executable) if environment == HERE else environments.python(environment)


class Contest:
    """The contestants of a machine, and what its matrix products reached in `packages`."""

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
        contestants = {each: self._contestants[each] for each in entered}
        jobs = write_jobs(workload, folder, contestants)
        work = jobs.work
        print(f"{name}: {work.steps} batches, {work.tgt_tokens:,} target tokens", flush=True)
        measured = {each: Measured(bfloat16=it.bfloat16) for each, it in contestants.items()}
        for number in range(0 if self._cold_starts else 1, rounds + 1):
            if number:
                self.measure_ceilings({each.bfloat16 for each in contestants.values()})
            for each in entered:
                if not measured[each].failure:
                    self._turn(each, measured[each], folder, jobs.parameters, alone=number == 0)
        for each in entered:
            print(line(each, work, measured[each]), flush=True)
        metrics, signatures = workload_metrics(name, work, measured, self.ceilings())
        if workload.shape is None:
            try:
                for state, seconds in command_seconds(workload, folder, seconds=SECONDS).items():
                    metrics[f"{name}_train_command_{state}_first_step_seconds"] = seconds
            except ProcessFailed as error:
                metrics[f"{name}_train_command_failed"] = 1
                signatures[f"{name}_train_command_failed"] = without_paths(str(error))
        return metrics, signatures

    def _turn(
        self, name: str, measured: Measured, folder: Path, expected: int, *, alone: bool
    ) -> None:
        """One run of a contestant: the first step, and unless that is to be alone all batches."""
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
        left = self._end - time.perf_counter()
        if left <= 0:
            raise ProcessFailed("no time was left for it")
        return min(SECONDS, left)

    def measure_ceilings(self, bfloat16: Collection[bool]) -> None:
        """Matrix products of both packages, where they are there, in the types that are used."""
        for package, environment in list(self._packages.items()):
            try:
                command = [str(python_of(environment, self._environments)), "-m"]
                command += ["benchmarks.training_contestants.ceiling", package]
                log = self._workdir / f"ceiling-{package}.log"
                with AskedProcess(command, log=log, folder=ROOT) as process:
                    for dtype in (DTYPES[each] for each in sorted(bfloat16)):
                        answer = process.ask(dtype, seconds=self._left())
                        self._ceilings.setdefault((package, dtype), []).append(answer["flops"])
            except (ProcessFailed, EnvironmentMissing) as error:
                del self._packages[package]
                print(f"matrix products of {package}: {error}", file=sys.stderr, flush=True)

    def ceilings(self) -> dict[str, float]:
        """By number type, what the better of the packages reached: the median of rounds."""
        found: dict[str, float] = {}
        for (_, dtype), values in self._ceilings.items():
            found[dtype] = max(found.get(dtype, 0.0), statistics.median(values))
        return found

    def ceiling_metrics(self) -> dict[str, float]:
        return {
            f"ceiling_{package}_{dtype}_gflops": statistics.median(values) / 1e9
            for (package, dtype), values in self._ceilings.items()
        }


def kept_in(cache: Path) -> dict[str, str]:
    """Settings by which JAX and PyTorch keep what they compile in this folder alone."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
    }
