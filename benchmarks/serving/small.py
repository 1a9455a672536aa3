"""How soon a small model answers over HTTP, beside a minimal server over CTranslate2.

python -m benchmarks.serving.small --workdir RUN --src FILE [--name NAME] [--requests N]

The servers run at the same time and are asked in turns, one sentence a request: N requests (200) by
one client, then ten times as many by 16 clients. `ours` searches with bfloat16 products where this
CPU has them, `ours_ctranslate2` with `--runtime ctranslate2`. The minimal server
(`minimal_server.py`) has the same framework, the same splitter and the run exported in float32;
of its two forms, one translation at a time on all cores or one on each core, the better figure
counts. The result is `serving_small.json`, or `serving_small_NAME.json`.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.arguments import positive
from benchmarks.serving.load import Load, drive
from benchmarks.serving.process import ServerProcess, lifetime, serving
from flaxformer_mt.reproduction.result_file import this_machine, write_result
from flaxformer_mt.rundir.layout import open_run, read_record

ROUNDS = 4
CLIENTS = 16
MANY = 10  # times as many requests by all clients
WARM = 20  # requests before the first that counts
LABELS = {"ours": "", "ours_ctranslate2": "_with_runtime_ctranslate2"}
AT_ONCE = (1, 2)  # translations of the minimal server's forms


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.small")
    parser.add_argument("--workdir", required=True, type=Path, metavar="RUN")
    parser.add_argument("--src", required=True, type=Path, metavar="FILE")
    parser.add_argument("--name", default="", help="of the result, if it isn't the first")
    parser.add_argument("--requests", type=positive, default=200, metavar="N")
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    record = read_record(open_run(options.workdir))
    sentences = options.src.read_text("utf-8").splitlines()

    with contextlib.ExitStack() as running:
        servers = {
            name: running.enter_context(server)
            for name, server in contestants(
                options.workdir, Path(running.enter_context(tempfile.TemporaryDirectory()))
            ).items()
        }
        for server in servers.values():
            drive(server, sentences, clients=1, requests=WARM, split=True)
        alone = in_turns(servers, sentences, clients=1, requests=options.requests)
        together = in_turns(servers, sentences, clients=CLIENTS, requests=MANY * options.requests)

    metrics = figures(alone, together)
    print(json.dumps(metrics, indent=2))
    suffix = f"_{options.name}" if options.name else ""
    write_result(
        options.result / f"serving_small{suffix}.json",
        command="python -m benchmarks.serving.small --workdir RUN --src FILE"
        + (f" --name {options.name}" if options.name else "")
        + (f" --requests {options.requests}" if options.requests != 200 else ""),
        config=record.config["name"],
        machine=this_machine("none"),
        seconds=time.perf_counter() - begin,
        metrics=metrics,
        signatures={},
    )
    return 0


def contestants(
    workdir: Path, folder: Path
) -> dict[str, contextlib.AbstractContextManager[ServerProcess]]:
    """The servers by name, not yet started. The run is exported into `folder`."""
    fm.export(workdir, folder / "model", format="ctranslate2", checked=False)
    settings = json.loads((folder / "model" / "settings.json").read_text("utf-8"))
    language = read_record(open_run(workdir)).config["data"]["src_lang"]
    minimal = [str(folder / "model"), "--language", language]
    minimal += ["--beam-size", str(settings["beam_size"])]
    return {
        "ours": serving(workdir, ["--no-constraints", "--dtype", "bfloat16"]),
        "ours_ctranslate2": serving(workdir, ["--runtime", "ctranslate2"]),
        **{
            f"ctranslate2_{at_once}_at_once": minimal_server([*minimal, "--at-once", str(at_once)])
            for at_once in AT_ONCE
        },
    }


@contextlib.contextmanager
def minimal_server(arguments: Sequence[str]) -> Iterator[ServerProcess]:
    """As `serving`, of the minimal server."""
    command = [sys.executable, "-m", "benchmarks.serving.minimal_server", *arguments]
    with tempfile.NamedTemporaryFile(prefix="minimal-", suffix=".log") as log_file:
        process = subprocess.Popen(command, stderr=log_file)
        yield from lifetime(process, Path(log_file.name), seconds=60.0)


def in_turns(
    servers: dict[str, ServerProcess], sentences: Sequence[str], *, clients: int, requests: int
) -> dict[str, list[Load]]:
    """Each server's rounds, each with its share of the requests."""
    loads: dict[str, list[Load]] = {name: [] for name in servers}
    for number in range(ROUNDS):
        share = requests // ROUNDS
        first = number * share % len(sentences)
        asked = [*sentences[first:], *sentences[:first]]  # others in each round
        for name, server in servers.items():
            load = drive(server, asked, clients=clients, requests=share, split=True)
            if load.refused:
                raise SystemExit(f"{name}: {load.refused} of {share} requests were refused")
            loads[name].append(load)
    return loads


def figures(alone: dict[str, list[Load]], together: dict[str, list[Load]]) -> dict[str, float]:
    """Milliseconds and rates of each server, and of the minimal one's forms the better of each."""
    metrics: dict[str, float] = {}
    for name in alone:
        of_one, of_all = joined(alone[name]), joined(together[name])
        label = LABELS.get(name, f"_{name}")
        metrics[f"p50_ms{label}"] = of_one.percentile(0.5)
        metrics[f"p50_ms_{CLIENTS}_clients{label}"] = of_all.percentile(0.5)
        metrics[f"p99_ms_{CLIENTS}_clients{label}"] = of_all.percentile(0.99)
        metrics[f"sentences_per_second{label}"] = statistics.median(
            load.per_second for load in together[name]
        )
    forms = [f"ctranslate2_{at_once}_at_once" for at_once in AT_ONCE]
    for figure, better in (
        ("p50_ms", min),
        (f"p50_ms_{CLIENTS}_clients", min),
        (f"p99_ms_{CLIENTS}_clients", min),
        ("sentences_per_second", max),
    ):
        metrics[f"{figure}_ctranslate2"] = better(metrics[f"{figure}_{form}"] for form in forms)
    return metrics


def joined(loads: Sequence[Load]) -> Load:
    """All rounds as one."""
    return Load(
        seconds=sum(load.seconds for load in loads),
        milliseconds=tuple(sorted(time for load in loads for time in load.milliseconds)),
        refused=sum(load.refused for load in loads),
    )


if __name__ == "__main__":
    sys.exit(main())
