"""A contestant: a process that trains on given batches on demand.

    python -m benchmarks.training_contestants.NAME JOB.json

It builds the model that the job describes, does one step, and says that it is ready. Then it
answers lines: `warm` does a step of every shape and a few more, `run` goes through all batches and
is timed, `learn` goes through all but the first, which it has seen, and says each step's loss. Each
answer is a line of JSON on standard output, which is kept for that alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np

PAD, BOS, EOS, UNK = 0, 1, 2, 3  # the ids in the batches
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
FIELDS = ("src", "tgt_in", "tgt_out")
# Warm-up steps beyond one of each shape. While the heap of a process grows, a step can take more
# than twice as long (docs/performance.md).
WARM = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A training: sizes of the model, its regularisation, Adam's settings and the batches.

    `precision` is that of matrix products' operands, "float32" or "bfloat16"; parameters, softmax
    and loss are float32. `compiled` asks for the package's compiler, where it has one. `experiment`
    and `overrides` are the same settings for this project's own `read_config`.
    """

    precision: str
    compiled: bool
    experiment: str
    overrides: tuple[str, ...]
    vocabulary: int  # types, one table for source, target and softmax
    encoder_layers: int
    decoder_layers: int
    d_model: int
    d_ff: int
    num_heads: int
    norm_epsilon: float
    max_length: int
    dropout: float  # on sub-layers' outputs and on embeddings, nowhere else
    label_smoothing: float
    learning_rate: float  # at the end of the warm-up: it grows linearly, then falls as step^-0.5
    warmup_steps: int
    beta1: float
    beta2: float
    epsilon: float
    batches: str  # a file of `write_batches`

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Job:
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**content, "overrides": tuple(content["overrides"])})


@dataclasses.dataclass(frozen=True)
class Rows:
    """Token ids of a batch, int32, with PAD for padding.

    `src` is `[rows, src_length]`, each sentence with its EOS; `tgt_in` and `tgt_out` are
    `[rows, tgt_length]`, the target behind BOS and the target with EOS.
    """

    src: np.ndarray
    tgt_in: np.ndarray
    tgt_out: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.src.shape, self.tgt_out.shape[1])

    @property
    def tgt_tokens(self) -> int:
        return int((self.tgt_out != PAD).sum())

    @property
    def is_full(self) -> bool:
        """Whether it has no padding, and needs no mask."""
        return bool((self.src != PAD).all() and (self.tgt_out != PAD).all())

    def trimmed(self) -> Rows:
        """Cut to its longest sentences, as for a library that compiles no shapes."""
        src = (self.src != PAD).any(axis=0).sum()
        tgt = (self.tgt_out != PAD).any(axis=0).sum()
        return Rows(self.src[:, :src], self.tgt_in[:, :tgt], self.tgt_out[:, :tgt])


def write_batches(path: Path, batches: Sequence[dict[str, np.ndarray]]) -> None:
    """Each batch's arrays by name, whatever they are; `read_rows` reads those of `Rows`."""
    arrays = {
        f"{n}.{name}": array for n, batch in enumerate(batches) for name, array in batch.items()
    }
    np.savez(path, **arrays)  # type: ignore[arg-type]


def read_batches(path: str) -> list[dict[str, np.ndarray]]:
    """The batches in order, each its arrays by name."""
    batches: dict[int, dict[str, np.ndarray]] = {}
    with np.load(path) as arrays:
        for key in arrays:
            number, _, name = key.partition(".")
            batches.setdefault(int(number), {})[name] = arrays[key]
    return [batches[number] for number in sorted(batches)]


def read_rows(path: str) -> list[Rows]:
    return [Rows(*(batch[name] for name in FIELDS)) for batch in read_batches(path)]


class Trainer(Protocol):
    """A model with its optimizer, and the batches in its own form."""

    parameters: int
    """How many train."""
    shapes: Sequence[tuple[int, ...]]
    """The shape of each batch, as the package sees it."""
    setup: str
    """Versions, device and settings, for people."""

    def step(self, number: int) -> None:
        """One update on a batch. It may return before the update is done."""

    def loss(self) -> float:
        """Waits for the last update and returns its smoothed loss a token (nats)."""

    def device_bytes(self) -> int | None:
        """The most memory that the accelerator has held; None on a CPU."""


def serve(build: Callable[[Job], Trainer]) -> None:
    """The program of a contestant's process: builds the trainer of the job, then answers."""
    answers = _private_output()
    trainer = build(Job.read(Path(sys.argv[1])))
    trainer.step(0)
    first = trainer.loss()
    _say(answers, {"parameters": trainer.parameters, "setup": trainer.setup, "loss": first})
    for line in sys.stdin:
        _say(answers, {"warm": warmed, "run": timed, "learn": learnt}[line.strip()](trainer))


def warmed(trainer: Trainer) -> dict[str, Any]:
    """A step of every shape, so that nothing is compiled or allocated for the first time later."""
    start = time.perf_counter()
    firsts = {shape: number for number, shape in reversed(list(enumerate(trainer.shapes)))}
    for number in firsts.values():
        trainer.step(number)
    for number in range(WARM):
        trainer.step(number % len(trainer.shapes))
    trainer.loss()
    return {"shapes": len(firsts), "seconds": time.perf_counter() - start}


def timed(trainer: Trainer) -> dict[str, Any]:
    """All batches once, from the first call until the last update is done."""
    start = time.perf_counter()
    for number in range(len(trainer.shapes)):
        trainer.step(number)
    loss = trainer.loss()
    seconds = time.perf_counter() - start
    device = trainer.device_bytes()
    return {"seconds": seconds, "loss": loss, "peak_bytes": peak_bytes(), "device_bytes": device}


def peak_bytes() -> int:
    """The most memory that was resident; 0 on systems other than Linux.

    `getrusage` wouldn't do: its maximum includes that of the parent before it started this process.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    kib = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(next(kib, "0")) * 1024


def learnt(trainer: Trainer) -> dict[str, Any]:
    """The batches in order, each once, and the loss of every step."""
    losses = []
    for number in range(1, len(trainer.shapes)):
        trainer.step(number)
        losses.append(trainer.loss())
        if number % 50 == 0:
            print(f"step {number}: loss {losses[-1]:.4f}", file=sys.stderr, flush=True)
    return {"losses": losses}


def _private_output() -> TextIO:
    """Standard output for answers alone; libraries print to standard error from now on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)
