"""Training beside other packages: the same model and batches on the same machine, in turns.

    python -m benchmarks.training_speed --workdir DIR [--peers NAME ...] [--config NAME ...]
        [--data FOLDER] [--rounds N] [--install | --python ENVIRONMENT=PYTHON ...]

Each run is a process of its own, which has the machine to itself: it builds its model, does a step
(the time to that counts from the start of the process), then one of every shape and ten more, and
is timed over the workload's batches. Rounds go through all contestants in turn; before them comes
one start with an empty compilation cache. Rates are of target tokens that are no padding. A share
is the model's FLOPs by formula (`model/flops.py`) over the best matrix product of that number type
which JAX or PyTorch reached, measured in every round as well.

`--config`: `tiny` (4+4 layers, width 128, 8,000 types, 128 x 32 tokens) and `base` (the paper's,
32,000 types, 32 x 32) have batches without padding; `multi30k` has the first batches of that corpus
(`--data`, Multi30k's `data/task1/tok`), prepared as `train` does, and then the time of the `train`
command itself is measured too. `paper_base` and `paper_big` have the paper's batch, for GPUs. If
none is named, it is `tiny` and `base` on a CPU, those two on a GPU, and `multi30k` with `--data`.

Peers live in environments of their own (`peers/`), but for `flax`: the same model of Flax's own
layers. Python's files are compiled before the start in all of them, as pip leaves them. What cannot
run is in the result with the reason.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import flaxformer_mt
from benchmarks import RESULTS
from benchmarks.bytecode import keep_bytecode, packages_of
from benchmarks.peer_environments import EnvironmentMissing, Environments
from benchmarks.training_contest import HERE, Contest, Contestant, accelerator, python_of
from benchmarks.training_workloads import ON_CPU, ON_GPU, WORKLOADS
from flaxformer_mt.reproduction.result_file import this_machine, write_result

CONTESTANTS = {
    "ours": Contestant("ours", HERE),
    "ours_bfloat16": Contestant("ours", HERE, bfloat16=True),
    "flax": Contestant("flax_linen", HERE),
    "flax_bfloat16": Contestant("flax_linen", HERE, bfloat16=True),
    "torch_float32": Contestant("torch_transformer", "torch"),
    "torch_bfloat16": Contestant("torch_transformer", "torch", bfloat16=True),
    "torch_compile_float32": Contestant("torch_transformer", "torch", compiled=True),
    "torch_compile_bfloat16": Contestant("torch_transformer", "torch", True, True),
    "huggingface": Contestant("huggingface_marian", "torch"),
    "huggingface_bfloat16": Contestant("huggingface_marian", "torch", bfloat16=True),
    "joeynmt": Contestant("joeynmt_transformer", "joeynmt"),
    "eole": Contestant("eole_transformer", "eole"),
    "eole_bfloat16": Contestant("eole_transformer", "eole", bfloat16=True),
}
ALWAYS = ("ours", "ours_bfloat16")
PEERS = tuple(name for name in CONTESTANTS if name not in ALWAYS)
OWN = [Path(__file__).parent, Path(flaxformer_mt.__file__).parent]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    options.workdir.mkdir(parents=True, exist_ok=True)
    machine = this_machine(accelerator())
    entered = (*options.ours, *options.peers)
    for environment in () if options.once else {CONTESTANTS[name].environment for name in entered}:
        with contextlib.suppress(EnvironmentMissing):  # which its contestants will say
            python = python_of(environment, options.environments)
            keep_bytecode(python, [*packages_of(python), *OWN])
    contest = Contest(
        options.workdir,
        options.environments,
        CONTESTANTS,
        cold_starts=not options.once,
        seconds=60 * options.minutes,
    )
    for name in options.config or workloads(machine.accelerator, options.data):
        begin = time.perf_counter()
        metrics, signatures = contest.workload(
            name,
            dataclasses.replace(WORKLOADS[name], steps=options.steps or WORKLOADS[name].steps),
            entered,
            rounds=1 if options.once else options.rounds,
            data=options.data,
        )
        # One each, as they take hours together and are measured again one by one.
        result = write_result(
            options.result / f"{file_name(name, machine.accelerator)}.json",
            command=as_typed(options, name),
            config=WORKLOADS[name].experiment,
            machine=machine,
            seconds=time.perf_counter() - begin,
            metrics={**metrics, **contest.ceiling_metrics()},
            signatures=signatures,
        )
        print(json.dumps(dict(result.metrics), indent=2), flush=True)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training_speed",
        description="Training speed beside other packages: the same model and batches, in turns.",
    )
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument(
        "--ours", nargs="*", default=list(ALWAYS), choices=ALWAYS, metavar="NAME",
        help="which of ours and ours_bfloat16 (default: both)",
    )  # fmt: skip
    parser.add_argument(
        "--peers", nargs="*", default=list(PEERS), choices=PEERS, metavar="NAME",
        help=f"who is compared (default: all of {', '.join(PEERS)})",
    )  # fmt: skip
    parser.add_argument(
        "--config", nargs="+", choices=WORKLOADS, metavar="NAME",
        help=f"what is trained: {', '.join(WORKLOADS)} (default: tiny and base, paper_base and "
        "paper_big where there is a GPU, and multi30k where there is --data)",
    )  # fmt: skip
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="Multi30k, tokenised")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument(
        "--once", action="store_true",
        help="one start of each, cold, with a single round in it, and bytecode as it is found",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, default=math.inf, metavar="N",
        help="after these nobody has another turn (default: no limit)",
    )  # fmt: skip
    parser.add_argument("--steps", type=int, metavar="N", help="of a run (default: by workload)")
    add_environments(parser)
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if "multi30k" in (options.config or ()) and options.data is None:
        parser.error("--config multi30k reads a corpus: --data names its folder")
    if options.rounds < 1:
        parser.error("--rounds: at least one")
    options.environments = environments_of(options, parser)
    return options


def add_environments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--install", action="store_true", help="make environments that are missing")
    parser.add_argument(
        "--python", nargs="+", default=[], metavar="ENVIRONMENT=PYTHON",
        help="interpreters of environments that are there: torch, joeynmt, eole",
    )  # fmt: skip


def environments_of(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Environments:
    """Those of the options of `add_environments`, below the working directory."""
    named = [assignment.partition("=") for assignment in options.python]
    known = {contestant.environment for contestant in CONTESTANTS.values()} - {HERE}
    wrong = [name for name, _, path in named if name not in known or not path]
    if wrong:
        parser.error(f"--python {wrong[0]}: write one of {', '.join(sorted(known))} = PYTHON")
    return Environments(
        options.workdir / "environments",
        install=options.install,
        present={name: Path(path) for name, _, path in named},
    )


def file_name(workload: str, accelerator: str) -> str:
    return f"training_speed_{workload}" + ("" if accelerator == "none" else "_gpu")


def workloads(accelerator: str, data: Path | None) -> list[str]:
    """The default workloads: on a CPU the paper's batch takes minutes a step."""
    return [*(ON_CPU if accelerator == "none" else ON_GPU), *(["multi30k"] if data else [])]


def as_typed(options: argparse.Namespace, workload: str) -> str:
    """The command for one workload, without paths of this machine."""
    words = [f"python -m benchmarks.training_speed --workdir DIR --config {workload}"]
    words += ["--data FOLDER"] if workload == "multi30k" else []
    words += ["--ours", *options.ours] if options.ours != list(ALWAYS) else []
    words += ["--peers", *options.peers] if options.peers != list(PEERS) else []
    words += [f"--steps {options.steps}"] if options.steps else []
    words += [f"--minutes {options.minutes:g}"] if math.isfinite(options.minutes) else []
    words += ["--once"] if options.once else [f"--rounds {options.rounds}", "--install"]
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
