"""PyTorch's own `nn.Transformer`, at its best for the paper's model.

Dropout stands where the paper has it, on sub-layers' outputs and embeddings; that on attention
weights and inside the feed-forward network, which `nn.Transformer` would add, is turned off: it
costs time, and keeps the CPU from the fused attention kernel. Where a batch has no padding the
module is told of none, and causality is a flag, so that the fused kernels are used.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from benchmarks.training_contestants.contest import PAD, Job, serve
from benchmarks.training_contestants.torch_steps import (
    Tokens,
    TorchTrainer,
    device,
    fused_adam,
    prepare,
)


class Translation(nn.Module):
    """`nn.Transformer` between tied embeddings and the softmax; gives the smoothed loss's sum."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.scale, self.smoothing = math.sqrt(job.d_model), job.label_smoothing
        self.embedding = nn.Embedding(job.vocabulary, job.d_model)
        nn.init.normal_(self.embedding.weight, std=job.d_model**-0.5)
        self.register_buffer("positions", sinusoids(job.max_length, job.d_model), persistent=False)
        self.dropout = nn.Dropout(job.dropout)
        self.transformer = nn.Transformer(
            job.d_model,
            job.num_heads,
            job.encoder_layers,
            job.decoder_layers,
            job.d_ff,
            job.dropout,
            layer_norm_eps=job.norm_epsilon,
            batch_first=True,
        )
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Dropout(0.0)

    def forward(self, tokens: Tokens) -> torch.Tensor:
        length = tokens.tgt_in.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.src.device)
        if tokens.tgt_padding is not None:
            causal = causal == -torch.inf  # of one kind with the padding's mask
        hidden = self.transformer(
            self.embed(tokens.src),
            self.embed(tokens.tgt_in),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=tokens.src_padding,
            tgt_key_padding_mask=tokens.tgt_padding,
            memory_key_padding_mask=tokens.src_padding,
        )
        logits = functional.linear(hidden, self.embedding.weight)
        return functional.cross_entropy(
            logits.flatten(0, 1).float(),
            tokens.tgt_out.flatten(),
            ignore_index=PAD,
            label_smoothing=self.smoothing,
            reduction="sum",
        )

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        positions = self.get_buffer("positions")[: ids.shape[1]]
        return self.dropout(self.embedding(ids) * self.scale + positions)


def sinusoids(length: int, d_model: int) -> torch.Tensor:
    """Section 3.5 of the paper."""
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def build(job: Job) -> TorchTrainer:
    prepare()
    module = Translation(job).to(device())
    loss = torch.compile(module) if job.compiled else module
    return TorchTrainer(job, module, loss, fused_adam(module, job), name="nn.Transformer")


if __name__ == "__main__":
    serve(build)
