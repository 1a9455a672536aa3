"""The workloads of `training_speed`: models of several sizes, and batches for all contestants."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from benchmarks.training_contestants.contest import Job
from flaxformer_mt.config import ExperimentConfig, read_config
from flaxformer_mt.data.batch import Batch
from flaxformer_mt.data.pipeline import Batches
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.data.vocabulary import BOS, EOS, Vocabularies
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.training.optimizer import learning_rate

_FIRST_TYPE = 4  # after the special marks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """An experiment and its batches, `shape` without padding or, where it is None, a corpus's own.

    `steps` is how many batches a timed run goes through.
    """

    experiment: str
    overrides: tuple[str, ...] = ()
    shape: Shape | None
    steps: int

    def load(self, *, bfloat16: bool = False) -> ExperimentConfig:
        return read_config(self.experiment, self.settings(bfloat16=bfloat16))

    def settings(self, *, bfloat16: bool) -> tuple[str, ...]:
        """The overrides, and the type of products' operands, whatever the experiment has."""
        return (*self.overrides, f"model.dtype={'bfloat16' if bfloat16 else 'float32'}")

    def of_corpus(self, folder: Path) -> Workload:
        """The same with its corpus in `folder`."""
        return dataclasses.replace(self, overrides=(*self.overrides, f"data.folder={folder}"))


WORKLOADS = {
    "tiny": Workload(
        experiment="multi30k:tiny",
        overrides=("data.vocabulary.size=8000",),
        shape=Shape(128, 32, 32),
        steps=12,
    ),
    "base": Workload(
        experiment="files:base",
        overrides=("data.vocabulary.size=32000",),
        shape=Shape(32, 32, 32),
        steps=6,
    ),
    "multi30k": Workload(experiment="multi30k:tiny", shape=None, steps=24),
    # The paper's batch, for accelerators, whose memory holds all logits at once (docs/running.md).
    **{
        f"paper_{variant}": Workload(
            experiment=f"wmt14_en_de:{variant}",
            overrides=("training.loss_chunk=0",),
            shape=Shape(768, 32, 32),
            steps=20,
        )
        for variant in ("base", "big")
    },
}
ON_CPU, ON_GPU = ("tiny", "base"), ("paper_base", "paper_big")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a timed run: its steps, target tokens and FLOPs.

    Tokens don't include padding, nor do FLOPs, which are those of the formula (`model/flops.py`).
    """

    vocabulary: int
    steps: int
    tgt_tokens: int
    padding: float  # share of positions, both sides
    flops: float


def synthetic(shape: Shape, vocabulary: int, count: int) -> list[Batch]:
    """Batches of random tokens without padding; each sentence ends in EOS."""
    random = np.random.default_rng(0)

    def ids(length: int) -> np.ndarray:
        tokens = random.integers(_FIRST_TYPE, vocabulary, (shape.rows, length), np.int32)
        tokens[:, -1] = EOS
        return tokens

    def one() -> Batch:
        src, tgt = ids(shape.src_length), ids(shape.tgt_length)
        tgt_in = np.concatenate([np.full((shape.rows, 1), BOS, np.int32), tgt[:, :-1]], axis=1)
        return Batch(
            src=src,
            src_segment_ids=np.ones_like(src),
            src_positions=_positions(src),
            tgt_in=tgt_in,
            tgt_out=tgt,
            tgt_segment_ids=np.ones_like(tgt),
            tgt_positions=_positions(tgt),
        )

    return [one() for _ in range(count)]


def real(
    config: ExperimentConfig, folder: Path, *, steps: int | None = None, tokens: int = 0
) -> tuple[list[Batch], int]:
    """The first batches that `train` would see of a corpus, prepared in `folder`, and its types.

    There are `steps` batches, or as many as hold `tokens` target tokens. A batch that lacks rows,
    of which a window has one, is left out: some packages don't define attention over a row of
    padding.
    """
    store = prepare(config.data, seed=config.training.seed, directory=folder)
    vocabulary = Vocabularies.load(folder / "vocabulary").tgt.size
    full_batches: list[Batch] = []
    seen = 0
    with Batches(Planner(store.train, config.data.batch, config.training.seed)) as batches:
        while len(full_batches) < steps if steps is not None else seen < tokens:
            batch, _ = next(batches)
            if (batch.src_segment_ids[:, 0] > 0).all():
                full_batches.append(batch)
                seen += int(batch.tgt_tokens)
    return full_batches, vocabulary


def work_of(config: ExperimentConfig, vocabulary: int, batches: list[Batch]) -> Work:
    flops = 0.0
    for batch in batches:
        src, tgt, sentences = (
            float(x) for x in (batch.src_tokens, batch.tgt_tokens, batch.sentences)
        )
        flops += training_flops(
            config.model,
            vocabulary,
            src_tokens=src,
            tgt_tokens=tgt,
            src_keys=src / sentences,
            tgt_keys=tgt / sentences,
        )
    tokens = sum(int(batch.tgt_tokens) for batch in batches)
    filled = tokens + sum(int(batch.src_tokens) for batch in batches)
    return Work(
        vocabulary=vocabulary,
        steps=len(batches),
        tgt_tokens=tokens,
        padding=1 - filled / sum(batch.shape.positions for batch in batches),
        flops=flops,
    )


def job_of(
    workload: Workload, vocabulary: int, batches: Path, *, bfloat16: bool, compiled: bool
) -> Job:
    """The workload as a contestant reads it."""
    config = workload.load(bfloat16=bfloat16)
    model, adam = config.model, config.training.optimizer
    schedule = config.training.schedule
    warmup = schedule.warmup_steps
    return Job(
        precision="bfloat16" if bfloat16 else "float32",
        compiled=compiled,
        experiment=workload.experiment,
        overrides=workload.settings(bfloat16=bfloat16),
        vocabulary=vocabulary,
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
        d_model=model.d_model,
        d_ff=model.d_ff,
        num_heads=model.num_heads,
        norm_epsilon=model.norm_epsilon,
        max_length=model.max_length,
        dropout=model.dropout,
        label_smoothing=config.training.label_smoothing,
        learning_rate=float(learning_rate(schedule, model.d_model)(warmup - 1)),
        warmup_steps=warmup,
        beta1=adam.beta1,
        beta2=adam.beta2,
        epsilon=adam.epsilon,
        batches=str(batches.resolve()),
    )


def _positions(ids: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape).copy()
