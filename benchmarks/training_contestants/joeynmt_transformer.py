"""JoeyNMT's model, loss, optimizer and trainer, on batches of its own class.

The step is its `TrainManager`'s own; what its loop does between steps (optimizer, schedule,
counters) is done here in the same order. Dropout inside sub-layers, which the paper has not, is
turned off.
"""

import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import torch
from joeynmt.batch import Batch
from joeynmt.config import parse_train_args
from joeynmt.model import build_model
from joeynmt.training import TrainManager
from joeynmt.transformer_layers import MultiHeadedAttention, PositionwiseFeedForward
from joeynmt.vocabulary import Vocabulary

from benchmarks.training_contestants.contest import BOS, EOS, PAD, SPECIALS, UNK, Job, serve
from benchmarks.training_contestants.torch_steps import (
    count,
    described,
    device,
    device_bytes,
    prepare,
    rows_of,
)


class JoeyTrainer:
    def __init__(self, job: Job) -> None:
        prepare()
        self._device = device()
        vocabulary = vocabulary_of(job)
        model = build_model(model_settings(job), vocabulary, vocabulary).to(self._device)
        for module in model.modules():
            if isinstance(module, MultiHeadedAttention):
                module.dropout.p = 0.0
            elif isinstance(module, PositionwiseFeedForward):
                dropouts = (
                    layer for layer in module.pwff_layer if isinstance(layer, torch.nn.Dropout)
                )
                next(dropouts).p = 0
        model.loss_function = ("crossentropy", job.label_smoothing)
        for_tensorboard = Path(tempfile.mkdtemp(prefix="joeynmt-"))
        self._manager = TrainManager(
            rank=0,
            model=model,
            model_dir=for_tensorboard,
            device=self._device,
            n_gpu=int(self._device.type == "cuda"),
            autocast={
                "device_type": self._device.type,
                "enabled": job.precision == "bfloat16",
                "dtype": torch.bfloat16,
            },
            train_args=parse_train_args(training_settings(job)),
        )
        # Its loop asks the schedule after a step: the first one would have the highest rate.
        self._manager.scheduler.step(0)
        self._rows = rows_of(job)
        self.shapes: Sequence[tuple[int, ...]] = [rows.shape for rows in self._rows]
        self.parameters = count(model)
        self.setup = described(job, f"JoeyNMT {version('joeynmt')}")
        self._last = 0.0

    def step(self, number: int) -> None:
        rows, manager = self._rows[number], self._manager
        # As from its own data pipeline, the target has both BOS and EOS.
        begin = torch.full((len(rows.tgt_out), 1), BOS)
        tgt = torch.cat([begin, torch.from_numpy(rows.tgt_out).long()], dim=1)
        src = torch.from_numpy(rows.src).long()
        batch = Batch(
            src=src,
            src_length=(src != PAD).sum(dim=1),
            src_prompt_mask=None,
            trg=tgt,
            trg_prompt_mask=None,
            indices=torch.arange(len(src)),
            device=self._device,
            pad_index=PAD,
            eos_index=EOS,
        )
        self._last, _ = manager._train_step(batch)
        if manager.scaler is None:
            manager.optimizer.step()
        else:
            manager.scaler.step(manager.optimizer)
            manager.scaler.update()
        manager.scheduler.step(manager.stats.steps)
        manager.model.zero_grad()
        manager.stats.steps += 1

    def loss(self) -> float:
        return self._last

    def device_bytes(self) -> int | None:
        return device_bytes(self._device)


def vocabulary_of(job: Job) -> Vocabulary:
    """A vocabulary with the ids of the batches."""
    pad, bos, eos, unk = SPECIALS
    settings = SimpleNamespace(
        unk_token=unk, pad_token=pad, bos_token=bos, eos_token=eos, sep_token=None,
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None, lang_tags=[],
    )  # fmt: skip
    vocabulary = Vocabulary([], settings)
    # It looks a token up in a list for each that it adds, and has an order of its own.
    vocabulary._itos = [*SPECIALS, *(f"t{number}" for number in range(4, job.vocabulary))]
    vocabulary._stoi = {token: number for number, token in enumerate(vocabulary._itos)}
    vocabulary.pad_index, vocabulary.bos_index = PAD, BOS
    vocabulary.eos_index, vocabulary.unk_index = EOS, UNK
    return vocabulary


def model_settings(job: Job) -> dict[str, object]:
    """Its `transformer_small.yaml` with this job's sizes, and norms after sub-layers."""

    def side(layers: int) -> dict[str, object]:
        return {
            "type": "transformer",
            "num_layers": layers,
            "num_heads": job.num_heads,
            "embeddings": {"embedding_dim": job.d_model, "scale": True, "dropout": job.dropout},
            "hidden_size": job.d_model,
            "ff_size": job.d_ff,
            "dropout": job.dropout,
            "layer_norm": "post",
        }

    return {
        "initializer": "xavier_uniform",
        "bias_initializer": "zeros",
        "embed_initializer": "xavier_uniform",
        "tied_embeddings": True,
        "tied_softmax": True,
        "encoder": side(job.encoder_layers),
        "decoder": side(job.decoder_layers),
    }


def training_settings(job: Job) -> dict[str, object]:
    return {
        "optimizer": "adam",
        "adam_betas": [job.beta1, job.beta2],
        "learning_rate": job.learning_rate,
        "scheduling": "warmupinversesquareroot",
        "learning_rate_warmup": job.warmup_steps,
        "learning_rate_min": 0.0,
        "label_smoothing": job.label_smoothing,
        "normalization": "tokens",
        "batch_size": 4096,
        "batch_type": "token",
        "batch_multiplier": 1,
        "epochs": 1,
        "validation_freq": 1_000_000,
        "logging_freq": 1_000_000,
    }


if __name__ == "__main__":
    serve(JoeyTrainer)
