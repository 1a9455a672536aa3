"""Two Ray nodes of one core against one: `prepare`, `translate`, kills, and an estimate for TPUs.

    python -m benchmarks.scale_out --europarl FOLDER --run DIR --workdir DIR --step-ms 1.0

--step-ms is a step of base's search on one chip, as `plan --decode` gives it for 64 rows.
Needs the extra `ray` and two idle cores. FOLDER is as for data_pipeline, `--run` a trained run
directory. One node, Ray's own processes and the caller share one core; two nodes share two, as if
each were a machine. Kills go in turn to a worker, a node and the command itself, while it prepares
the pairs (the corpus, over and over) or translates the first words of each into two tokens.
"""

import argparse
import contextlib
import functools
import lzma
import math
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import RESULTS
from flaxformer_mt.bulk.reading import open_lines
from flaxformer_mt.bulk.sinks import FileSink
from flaxformer_mt.bulk.stream import WINDOW, Made, Window, stream
from flaxformer_mt.cluster import Workers, workers
from flaxformer_mt.config import read_config
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.progress import Meter
from flaxformer_mt.reproduction.result_file import write_result

WARM = 20.0  # seconds for workers to start
VICTIMS = ("worker", "node", "driver")
SECONDS = 4.0, 12.0  # from one kill to the next
BILLION = 1e9
CORES = os.sched_getaffinity(0)
ROWS = 64  # of a batch, in the planned step


class Nodes:
    """A Ray cluster on this machine: a head without cores, and nodes of one core.

    Each node has a core to itself; the head and whatever this process starts later have the first
    `count` cores in common.
    """

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        self.cores = sorted(CORES)[:count]
        os.sched_setaffinity(0, self.cores)
        head = {"num_cpus": 0, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self.add(core) for core in self.cores]
        self.address = str(self.cluster.address)

    def add(self, core: int) -> Any:
        os.sched_setaffinity(0, {core})
        node = self.cluster.add_node(num_cpus=1)
        os.sched_setaffinity(0, self.cores)
        return node

    def kill(self, victim: str, driver: subprocess.Popen[Any]) -> bool:
        """Whether there was one to be killed."""
        if victim == "driver":
            driver.kill()
            return driver.wait() == -signal.SIGKILL
        if victim == "node":
            self.cluster.remove_node(self.nodes[0], allow_graceful=False)
            self.nodes[0] = self.add(self.cores[0])
            return True
        raylet, killed = self.nodes[0].all_processes["raylet"][0].process.pid, False
        for child in Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # has ended
                if b"ray::_Worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)
                    killed = True
        return killed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_out")
    parser.add_argument("--europarl", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--run", required=True, type=Path, metavar="DIR", help="a trained run")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR", help="new folder")
    parser.add_argument("--pairs", type=int, default=2_000_000, metavar="N", help="to prepare")
    parser.add_argument("--lines", type=int, default=2_000, metavar="N", help="to translate")
    parser.add_argument("--step-ms", required=True, type=float, metavar="MS")
    parser.add_argument("--kills", type=int, default=30, metavar="N")
    options = parser.parse_args(arguments)
    if options.kills < 2:
        parser.error("--kills: at least 2, one for each command")
    begin, folder = time.perf_counter(), options.workdir.absolute()
    folder.mkdir(parents=True)
    cut(options.europarl, folder, options.pairs, options.lines)
    config = read_config("files:base", settings(folder))
    targets = prepare(config.data, seed=1, directory=folder / "alone").train.sides["tgt"]
    tokens = float(targets.lengths(np.arange(len(targets))).mean())
    metrics: dict[str, float] = {"planned_step_ms": options.step_ms, "tokens_a_sentence": tokens}
    for count in (1, 2):
        nodes = Nodes(count)
        for name, rate in rates(folder, config.data, options.run, nodes, count).items():
            metrics[f"{name}_{count}"] = rate
            print(f"{name}_{count}: {rate:,.1f}", flush=True)
        if count == 2:
            metrics |= kill_in_turn(folder, options.run, nodes, options.kills)
        nodes.cluster.shutdown()
    for name in ("prepare_pairs_per_second", "translate_lines_per_second"):
        metrics[f"{name.partition('_')[0]}_ratio"] = metrics[f"{name}_2"] / metrics[f"{name}_1"]
    fed = metrics["prepare_pairs_per_driver_second_2"] / metrics["prepare_pairs_per_second_1"]
    metrics["prepare_cores_that_a_caller_feeds"] = fed
    metrics["translate_lines_per_driver_second"] = driver_rate(folder)
    metrics |= billion(options.step_ms, tokens, metrics["translate_lines_per_driver_second"])
    write_result(
        RESULTS / "scale_out.json",
        command="python -m benchmarks.scale_out --europarl FOLDER --run DIR --workdir DIR "
        f"--step-ms {options.step_ms} --pairs {options.pairs} --lines {options.lines} "
        f"--kills {options.kills}",
        config="files:base",
        seconds=time.perf_counter() - begin,
        metrics=metrics,
        signatures={},
    )
    for name, number in metrics.items():
        print(f"{name}: {number:,.3f}")
    return int(metrics["kills_lost"] + metrics["kills_doubled"] + metrics["kills_unequal"] > 0)


def cut(europarl: Path, folder: Path, pairs: int, lines: int) -> None:
    """Writes plain text, which workers can read: train and valid, and lines to translate."""
    for side in ("en", "fr"):
        for part, name in (("train-500k", "train"), ("dev", "valid")):
            with lzma.open(europarl / f"{part}.{side}.xz", "rb") as file:
                text = list(file)
            count = pairs if name == "train" else len(text)
            (folder / f"{name}.{side}").write_bytes(b"".join(islice(cycle(text), count)))
    with open(folder / "train.en", "rb") as english, open(folder / "words", "wb") as words:
        (folder / "source").write_bytes(b"".join(islice(english, lines)))
        english.seek(0)
        words.writelines(b" ".join(line.split()[:4]) + b"\n" for line in english)


def settings(folder: Path) -> list[str]:
    sides = [
        f"data.{corpus}.{side}={name}.{language}"
        for corpus, name in (("train.europarl", "train"), ("valid", "valid"))
        for side, language in (("src", "en"), ("tgt", "fr"))
    ]
    vocabulary = ["data.vocabulary.size=8000", "data.vocabulary.sample=20000"]
    return [f"data.folder={folder}", "data.tgt_lang=fr", *sides, *vocabulary]


def rates(folder: Path, data: Any, run: Path, nodes: Nodes, count: int) -> dict[str, float]:
    """Rates once workers have started; that of `prepare` with its vocabulary already made."""
    place, output = folder / f"nodes-{count}", folder / f"output-{count}"
    shutil.copytree(folder / "alone" / "vocabulary", place / "vocabulary")
    began: list[float] = []

    @contextlib.contextmanager
    def timed(begin: Any) -> Iterator[Workers]:
        call = functools.partial(workers, address=nodes.address, say=print, chips=1, kinds=("CPU",))
        with call(begin) as started:
            time.sleep(WARM)  # until the other node's worker is there too
            began.extend((time.perf_counter(), time.process_time()))
            yield started

    store = prepare(data, seed=1, directory=place, cluster=timed)
    wall_seconds = time.perf_counter() - began[0]
    driver_seconds = time.process_time() - began[1]

    command = translate(run, folder / "source", output, nodes)
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    rate = re.search(r"([\d,.]+) lines/s", completed.stderr.splitlines()[-1])
    assert rate and outputs(place) == outputs(folder / "alone"), completed.stderr
    return {
        "prepare_pairs_per_second": len(store.train) / wall_seconds,
        "prepare_pairs_per_driver_second": len(store.train) / driver_seconds,
        "translate_lines_per_second": float(rate[1].replace(",", "")),
    }


def translate(run: Path, source: Path, output: Path, nodes: Nodes | None) -> list[str]:
    command = [sys.executable, "-m", "flaxformer_mt", "translate", "--workdir", str(run)]
    command += ["--input", str(source), "--output", str(output), "--window", "64"]
    return command + on(nodes)


def preparing(folder: Path, place: Path, nodes: Nodes | None) -> list[str]:
    command = [sys.executable, "-m", "flaxformer_mt", "prepare", "--config", "files:base"]
    command += ["--workdir", str(place), *(f"--config.{setting}" for setting in settings(folder))]
    return command + on(nodes)


def on(nodes: Nodes | None) -> list[str]:
    return ["--engine", "ray", "--ray-address", nodes.address] if nodes else []


def outputs(place: Path) -> list[bytes]:
    """Every file of a store, or the lines of an output."""
    if place.is_dir():
        files = (
            path for path in (place / "data").rglob("*") if path.suffix not in (".json", ".svg")
        )
        return [path.read_bytes() for path in sorted(files)]
    return place.read_bytes().splitlines(keepends=True)


def kill_in_turn(folder: Path, run: Path, nodes: Nodes, kills: int) -> dict[str, float]:
    """`prepare` and `translate` with half of the kills each, at random moments; if a kill ends the
    command, it starts again. Differences are counted in files of a store, and in lines."""
    chance, counts = random.Random(0), Counter[str]()
    commands: dict[str, Callable[[Path, Nodes | None], list[str]]] = {
        "prepare": lambda place, nodes: preparing(folder, place, nodes),
        "translate": lambda place, nodes: [
            *translate(run, folder / "words", place, nodes),
            *"--beam-size 1 --max-ratio 0 --max-extra-tokens 2 --window 2048".split(),
        ],
    }
    for name, command in commands.items():
        undisturbed, victims = folder / f"{name}-whole", islice(cycle(VICTIMS), kills // 2)
        subprocess.run(command(undisturbed, None), check=True, capture_output=True)
        victim = next(victims, None)
        while victim:
            place = folder / f"{name}-{counts[f'kills_{name}s']}"
            process = subprocess.Popen(command(place, nodes))
            while victim:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(*SECONDS))
                    break
                if nodes.kill(victim, process):
                    counts.update(("kills", f"kills_of_{victim}"))
                    if victim == "driver":
                        process = subprocess.Popen(command(place, nodes))
                    victim = next(victims, None)
            if process.wait():
                raise RuntimeError(f"{name} ended with {process.returncode}")
            expected = outputs(undisturbed)
            assert expected, f"{name} made nothing"
            counts.update(differences(outputs(place), expected))
            counts[f"kills_{name}s"] += 1
            print(f"{name}: {dict(counts)}", flush=True)
    return {name: float(number) for name, number in counts.items()}


def differences(actual: Sequence[bytes], expected: Sequence[bytes]) -> dict[str, int]:
    """How many outputs were lost and doubled, and whether any differs, order included."""
    return {
        "kills_lost": (Counter(expected) - Counter(actual)).total(),
        "kills_doubled": (Counter(actual) - Counter(expected)).total(),
        "kills_unequal": int(actual != expected),
    }


def driver_rate(folder: Path) -> float:
    """Lines a second that the caller reads, sends, gets back and writes, as if it did only that."""

    def sent(windows: Iterable[Window]) -> Iterator[tuple[Window, Made]]:
        for window in windows:
            arrived = pickle.loads(pickle.dumps(window))
            output = Made(output=b"".join(line + b"\n" for line in arrived.lines))
            yield window, pickle.loads(pickle.dumps(output))

    begin = time.process_time()
    with open_lines(str(folder / "train.en")) as lines:
        meter = Meter("", print, share=lines.share)
        sink = FileSink(f"{folder}/copied")
        stream(lines, sink, sent, identity={}, window=WINDOW, meter=meter)
    return lines.number / (time.process_time() - begin)


def billion(step_ms: float, tokens: float, driver: float) -> dict[str, float]:
    """Hours and chip-hours for 10^9 sentences of so many tokens, at that step and full batches."""
    per_chip = ROWS / (tokens * step_ms / 1e3)  # sentences per second
    metrics = {"v5e_sentences_per_second_and_chip": per_chip}
    for chips in (8, 256):
        hours = BILLION / (per_chip * chips) / 3600
        metrics[f"v5e_{chips}_hours"] = hours
        metrics[f"v5e_{chips}_chip_hours"] = hours * chips
        metrics[f"v5e_{chips}_callers"] = math.ceil(per_chip * chips / driver)
    return metrics


if __name__ == "__main__":
    sys.exit(main())
