"""Shared by the contestants in PyTorch: device, batches, precision, an update."""

import os
import platform
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.training_contestants.contest import Job, Rows, read_rows

Loss = Callable[["Tokens"], torch.Tensor]
"""A batch's smoothed loss summed over its target tokens."""


class Tokens:
    """A batch on the device: ids as int64 tensors, and masks of its padding.

    `src_padding` and `tgt_padding` are True at padding; both are None for a batch without any.
    """

    def __init__(self, rows: Rows, device: torch.device) -> None:
        self.src, self.tgt_in, self.tgt_out = (
            torch.from_numpy(array).to(device, torch.int64)
            for array in (rows.src, rows.tgt_in, rows.tgt_out)
        )
        self.count = rows.tgt_tokens
        self.src_padding = None if rows.is_full else self.src == 0
        self.tgt_padding = None if rows.is_full else self.tgt_out == 0


class TorchTrainer:
    """A module, its loss and its optimizer as a contestant (`contest.Trainer`).

    The batches are those of the job, cut to their longest sentences unless the module is compiled:
    then fewer shapes are better. They come from the host in each step, as in a real training.
    """

    def __init__(
        self,
        job: Job,
        module: torch.nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        *,
        name: str,
    ) -> None:
        self.device = device()
        self._rows = rows_of(job)
        self.shapes: Sequence[tuple[int, ...]] = [rows.shape for rows in self._rows]
        self.parameters = count(module)
        self.setup = described(job, name)
        self._loss, self._optimizer = loss, optimizer
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda done: warmed_up(done + 1, job.warmup_steps)
        )
        self._precision = job.precision
        self._last: torch.Tensor | None = None
        module.train()

    def step(self, number: int) -> None:
        tokens = Tokens(self._rows[number], self.device)
        self._optimizer.zero_grad(set_to_none=True)
        with autocast(self.device, self._precision):
            total = self._loss(tokens)
        mean = total / tokens.count
        mean.backward()
        self._optimizer.step()
        self._schedule.step()
        self._last = mean.detach()

    def loss(self) -> float:
        assert self._last is not None
        return float(self._last)

    def device_bytes(self) -> int | None:
        return device_bytes(self.device)


def prepare() -> None:
    """Settings of the process, before anything is built: all cores, and TF32 as XLA has it."""
    torch.manual_seed(1)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_bytes(place: torch.device) -> int | None:
    return torch.cuda.max_memory_allocated(place) if place.type == "cuda" else None


def autocast(place: torch.device, precision: str) -> Any:
    return torch.autocast(place.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def warmed_up(step: int, warmup_steps: int) -> float:
    """The paper's schedule (section 5.3) relative to its highest value; steps count from 1."""
    return min(step / warmup_steps, (warmup_steps / step) ** 0.5)


def rows_of(job: Job) -> list[Rows]:
    rows = read_rows(job.batches)
    return rows if job.compiled else [batch.trimmed() for batch in rows]


def count(module: torch.nn.Module) -> int:
    """Parameters that train, a tied one once."""
    return sum(tensor.numel() for tensor in module.parameters() if tensor.requires_grad)


def fused_adam(module: torch.nn.Module, job: Job) -> torch.optim.Optimizer:
    """PyTorch's quickest Adam, on CPUs as on GPUs."""
    return torch.optim.Adam(
        [tensor for tensor in module.parameters() if tensor.requires_grad],
        lr=job.learning_rate,
        betas=(job.beta1, job.beta2),
        eps=job.epsilon,
        fused=True,
    )


def described(job: Job, name: str) -> str:
    """Versions, device and settings in a line."""
    place = device()
    where = (
        torch.cuda.get_device_name(place)
        if place.type == "cuda"
        else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    )
    how = f"{job.precision}{' autocast' if job.precision != 'float32' else ''}"
    compiled = ", torch.compile" if job.compiled else ""
    return f"{name}, PyTorch {torch.__version__}, {how}{compiled}, {where}"
