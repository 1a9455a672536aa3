"""Eole's encoder-decoder, loss and optimizer, put together by its own builders.

Its decoder has norms before sub-layers only, and so has the encoder here, with a final one in each
stack: as much work as after them. Dropout inside the feed-forward network is turned off.
"""

import warnings
from collections.abc import Sequence
from importlib.metadata import version

# Each import of eole warns about optional packages that are missing.
warnings.filterwarnings("ignore", category=RuntimeWarning, module="eole")

import torch  # noqa: E402
from eole.config.run import TrainConfig  # noqa: E402
from eole.models.model import get_model_class  # noqa: E402
from eole.modules.transformer_mlp import MLP  # noqa: E402
from eole.utils.loss import LossCompute  # noqa: E402
from eole.utils.optimizers import Optimizer  # noqa: E402

from benchmarks.training_contestants.contest import SPECIALS, Job, serve  # noqa: E402
from benchmarks.training_contestants.torch_steps import (  # noqa: E402
    autocast,
    count,
    described,
    device,
    device_bytes,
    prepare,
    rows_of,
)


class EoleTrainer:
    def __init__(self, job: Job) -> None:
        prepare()
        self._device, self._precision = device(), job.precision
        config = settings(job)
        vocabularies = vocabularies_of(job)
        model_class = get_model_class(config.model)
        self._model = model_class.for_training(config.model, vocabularies, config.training)
        self._model.to(self._device).train()
        for module in self._model.modules():
            if isinstance(module, MLP):
                module.dropout_1.p = 0.0
        self._loss = LossCompute.from_config(config, self._model, vocabularies)
        self._optimizer = Optimizer.from_config(self._model, config)
        self._rows = rows_of(job)
        self.shapes: Sequence[tuple[int, ...]] = [rows.shape for rows in self._rows]
        self.parameters = count(self._model)
        self.setup = described(job, f"eole {version('eole')}")
        self._last: torch.Tensor | None = None

    def step(self, number: int) -> None:
        rows = self._rows[number]
        src = torch.from_numpy(rows.src).to(self._device, torch.int64)
        first = torch.from_numpy(rows.tgt_in[:, :1]).to(self._device, torch.int64)
        out = torch.from_numpy(rows.tgt_out).to(self._device, torch.int64)
        tgt = torch.cat([first, out], dim=1)
        lengths = (src != 0).sum(dim=1)
        self._optimizer.zero_grad()
        with autocast(self._device, self._precision):
            output, attention, estimate = self._model(src, tgt, lengths)
            batch = {
                "src": src,
                "tgt": tgt,
                "srclen": lengths,
                "cid": ["all"],
                "cid_line_number": [0],
            }
            loss, _, extra = self._loss(batch, output, attention, estim=estimate)
        loss = loss / rows.tgt_tokens + extra
        self._optimizer.backward(loss)
        self._optimizer.step()
        self._last = loss.detach()

    def loss(self) -> float:
        assert self._last is not None
        return float(self._last)

    def device_bytes(self) -> int | None:
        return device_bytes(self._device)


def vocabularies_of(job: Job) -> dict[str, object]:
    types = [*SPECIALS, *(f"t{number}" for number in range(4, job.vocabulary))]
    table = {token: number for number, token in enumerate(types)}
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIALS, strict=True))
    return {
        "src": Types(table),
        "tgt": Types(table),
        "specials": names,
        "decoder_start_token": "<s>",
    }


class Types(dict[str, int]):
    """A vocabulary with the interface that eole expects."""

    def lookup_index(self, number: int) -> str:
        return [*self][number]


def settings(job: Job) -> TrainConfig:
    """A Transformer with tied tables, the paper's schedule and its dropout."""
    # Its "noam" is the schedule by its formula, times a factor.
    highest = (job.d_model * job.warmup_steps) ** -0.5
    return TrainConfig(
        src_vocab="none",
        tgt_vocab="none",
        data={},
        model={
            "architecture": "transformer",
            "hidden_size": job.d_model,
            "transformer_ff": job.d_ff,
            "heads": job.num_heads,
            "encoder": {"layers": job.encoder_layers},
            "decoder": {"layers": job.decoder_layers},
            "norm_eps": job.norm_epsilon,
            "add_ffnbias": True,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "generator_bias": False,
            "embeddings": {
                "word_vec_size": job.d_model,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
        training={
            "optim": "adam",
            "learning_rate": job.learning_rate / highest,
            "adam_beta1": job.beta1,
            "adam_beta2": job.beta2,
            "adam_eps": job.epsilon,
            "decay_method": "noam",
            "warmup_steps": job.warmup_steps,
            "max_grad_norm": 0.0,
            "label_smoothing": job.label_smoothing,
            "dropout": [job.dropout],
            "attention_dropout": [0.0],
            "param_init_method": "xavier_uniform",
            "compute_dtype": "fp32",
            "gpu_ranks": [0] if torch.cuda.is_available() else [],
        },
    )


if __name__ == "__main__":
    serve(EoleTrainer)
