"""How soon commands answer: mistakes, a scored file, a sentence, and 500 lines of the quickstart.

    python -m benchmarks.first_answers --workdir DIR [--run DIR] [--rounds 9] [--result FOLDER]

Every command is started as a user starts it, so the time includes Python's own start, and compiled
programs are kept in a folder of `--workdir`. Wrong flags, help and wrong settings are those of the
slowest command. The sentence is translated by the model that comes with the package. "cold" is with
an empty folder of programs, "warm" with that of an earlier call. Times are medians of `--rounds`
calls (of a third of them for the 500 lines), after one that isn't counted.

The whole quickstart is timed as well, minutes on two cores, and leaves the run for the 500 lines.
`--run` names a run that `quickstart` has made before, and leaves that out.
"""

import argparse
import dataclasses
import itertools
import json
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.arguments import positive
from flaxformer_mt.grammar.text import pairs
from flaxformer_mt.reproduction.result_file import write_result

ROOT = Path(__file__).parent.parent
SENTENCE = "Where can I buy a ticket for the train to Berlin?\n"
SCORED, TRANSLATED = 3000, 500  # lines
# Of the quickstart's own test split, of which each seed draws others.
_SCORED_SEED, _NOISE_SEED = 3, 1
_REPLACED, _LEFT_OUT, _SWAPPED = 0.25, 0.2, 0.3  # shares of words, and of lines
_WRONG_SETTING = ("--config", "quickstart", "--config.training.stps=3")


class CommandFailed(RuntimeError):
    """A command that ended with another exit status than it should have."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """The time that a command took: by the clock, and of processors."""

    seconds: float
    processor_seconds: float

    @classmethod
    def median(cls, timings: Sequence["Timing"]) -> "Timing":
        """Of both figures."""
        return cls(
            statistics.median(timing.seconds for timing in timings),
            statistics.median(timing.processor_seconds for timing in timings),
        )


@dataclasses.dataclass(frozen=True)
class Shell:
    """Starts commands that keep what they compile in the folder `cache`."""

    cache: Path
    rounds: int

    def timed(self, *words: str, text: str = "", status: int = 0) -> Timing:
        """A command's time, from its start to its end. Raises CommandFailed."""
        before, begin = _processor_seconds(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "flaxformer_mt", *words],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "FLAXFORMER_CACHE": str(self.cache.resolve())},
        )
        seconds = time.perf_counter() - begin
        if done.returncode != status:
            last = done.stderr.strip().rpartition("\n")[2]
            raise CommandFailed(f"{' '.join(words)}: exit status {done.returncode}: {last}")
        return Timing(seconds, _processor_seconds() - before)

    def warm(self, *words: str, text: str = "", status: int = 0, rounds: int = 0) -> Timing:
        """The median of several calls, after one that isn't counted."""
        self.timed(*words, text=text, status=status)
        calls = range(rounds or self.rounds)
        return Timing.median([self.timed(*words, text=text, status=status) for _ in calls])

    def cold(self, *words: str, text: str = "", rounds: int) -> Timing:
        """The median of several calls, each with an empty cache."""
        timings = []
        for _ in range(rounds):
            shutil.rmtree(self.cache, ignore_errors=True)
            timings.append(self.timed(*words, text=text))
        return Timing.median(timings)


def _processor_seconds() -> float:
    """Of all commands that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def mistakes(commands: Sequence[str], folder: Path) -> Iterator[tuple[Sequence[str], int]]:
    """Arguments that a command answers before its work, and the exit status of each."""
    for command in commands:
        yield (command, "--help"), 0
        yield (command, "--no-such-flag"), 2
    missing = ("--workdir", str(folder / "no-such-run"))
    for command in {"train", "prepare"} & {*commands}:
        yield (command, *missing, *_WRONG_SETTING), 2
    for command in {"translate", "evaluate", "serve"} & {*commands}:
        yield (command, *missing), 2


def all_commands() -> list[str]:
    """Their names, as the program lists them."""
    listed = subprocess.run(
        [sys.executable, "-m", "flaxformer_mt", "--help"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return re.findall(r"^    ([a-z]+)(?: |$)", listed.stdout, re.MULTILINE)


def write_scored(folder: Path, *, lines: int) -> tuple[Path, Path]:
    """Files of hypotheses and references: sentences of the grammar, and the same made worse."""
    references = [
        target for _, target in itertools.islice(pairs("test", lines, _SCORED_SEED), lines)
    ]
    rng = random.Random(_NOISE_SEED)
    words = [word for line in references for word in line.split()]
    hypotheses = []
    for line in references:
        worse = [rng.choice(words) if rng.random() < _REPLACED else word for word in line.split()]
        if rng.random() < _SWAPPED:
            worse[0], worse[-1] = worse[-1], worse[0]
        if rng.random() < _LEFT_OUT:
            worse.pop(rng.randrange(len(worse)))
        hypotheses.append(" ".join(worse))
    files = folder / "hypotheses.de", folder / "references.de"
    for file, text in zip(files, (hypotheses, references), strict=True):
        file.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return files


@dataclasses.dataclass(frozen=True)
class Measured:
    """The times of all answers, by the names of the result's metrics, and the slowest mistake."""

    timings: dict[str, Timing]
    slowest: str

    def metrics(self) -> dict[str, float]:
        """The times by the clock, and then those of processors."""
        seconds = {f"{name}_seconds": timing.seconds for name, timing in self.timings.items()}
        processors = {
            f"{name}_processor_seconds": timing.processor_seconds
            for name, timing in self.timings.items()
        }
        return seconds | processors


def measured(
    folder: Path, run: Path | None, *, rounds: int, commands: Sequence[str], scored: int, lines: int
) -> Measured:
    """Times everything in `folder`; without a `run` of the quickstart also that. Raises
    CommandFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    shell = Shell(folder / "cache", rounds)
    few = max(1, rounds // 3)
    timings: dict[str, Timing] = {}

    print("a sentence", file=sys.stderr)
    demo = fm.demo_run(folder / "demo")
    sentence = ("translate", "--workdir", str(demo))
    timings["one_sentence_cold"] = shell.cold(*sentence, text=SENTENCE, rounds=few)
    timings["one_sentence_warm"] = shell.warm(*sentence, text=SENTENCE)

    if run is None:
        print("the quickstart", file=sys.stderr)
        run = folder / "run"
        timings["quickstart_whole"] = shell.cold("quickstart", "--workdir", str(run), rounds=1)
    print(f"{lines} lines", file=sys.stderr)
    text = "".join(f"{source}\n" for source, _ in itertools.islice(pairs("test", lines), lines))
    translate = ("translate", "--workdir", str(run))
    timings[f"quickstart_{lines}_lines_cold"] = shell.cold(*translate, text=text, rounds=few)
    timings[f"quickstart_{lines}_lines_warm"] = shell.warm(*translate, text=text, rounds=few)

    print("a file of hypotheses", file=sys.stderr)
    hypotheses, references = map(str, write_scored(folder, lines=scored))
    scoring = ("--hypotheses", hypotheses, "--ref", references, "--resamples", "0")
    timings["evaluate_hypotheses"] = shell.warm("evaluate", *scoring)

    print("mistakes", file=sys.stderr)
    answers = {
        " ".join(words): shell.warm(*words, status=status)
        for words, status in mistakes(commands, folder)
    }
    slowest = max(answers, key=lambda words: answers[words].seconds)
    timings["slowest_wrong_flag"] = answers[slowest]
    return Measured(timings, slowest.replace(str(folder), "DIR"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_answers")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR", help="a new folder")
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run that `quickstart` has made")
    parser.add_argument("--rounds", type=positive, default=9, metavar="N")
    parser.add_argument("--commands", nargs="+", metavar="NAME", help="for mistakes; default: all")
    parser.add_argument("--scored", type=positive, default=SCORED, metavar="LINES")
    parser.add_argument("--lines", type=positive, default=TRANSLATED, metavar="LINES")
    parser.add_argument("--result", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    if (options.workdir / "run").exists() and options.run is None:
        parser.error(f"{options.workdir}/run exists: name it with --run, or give a new --workdir")
    begin = time.perf_counter()
    times = measured(
        options.workdir,
        options.run,
        rounds=options.rounds,
        commands=options.commands or all_commands(),
        scored=options.scored,
        lines=options.lines,
    )
    result = write_result(
        options.result / "first_answers.json",
        command="python -m benchmarks.first_answers --workdir DIR",
        config="quickstart",
        seconds=time.perf_counter() - begin,
        metrics=times.metrics(),
        signatures={},
        details={"slowest_wrong_flag": times.slowest, "rounds": str(options.rounds)},
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
