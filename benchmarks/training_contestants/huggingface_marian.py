"""Hugging Face's Marian model, as its `Trainer` would step it: label smoother, fused Adam."""

import torch
import transformers
from transformers import MarianConfig, MarianMTModel
from transformers.trainer_pt_utils import LabelSmoother

from benchmarks.training_contestants.contest import BOS, EOS, PAD, Job, serve
from benchmarks.training_contestants.torch_steps import (
    Tokens,
    TorchTrainer,
    device,
    fused_adam,
    prepare,
)


def build(job: Job) -> TorchTrainer:
    prepare()
    module = MarianMTModel(marian(job)).to(device())
    smoothed = LabelSmoother(epsilon=job.label_smoothing)
    called = torch.compile(module) if job.compiled else module

    def loss(tokens: Tokens) -> torch.Tensor:
        outputs = called(
            input_ids=tokens.src,
            attention_mask=None if tokens.src_padding is None else ~tokens.src_padding,
            decoder_input_ids=tokens.tgt_in,
            use_cache=False,
        )
        labels = tokens.tgt_out.masked_fill(tokens.tgt_out == PAD, smoothed.ignore_index)
        return smoothed(outputs, labels) * tokens.count

    name = f"Marian of transformers {transformers.__version__}"
    return TorchTrainer(job, module, loss, fused_adam(module, job), name=name)


def marian(job: Job) -> MarianConfig:
    return MarianConfig(
        vocab_size=job.vocabulary,
        d_model=job.d_model,
        encoder_layers=job.encoder_layers,
        decoder_layers=job.decoder_layers,
        encoder_ffn_dim=job.d_ff,
        decoder_ffn_dim=job.d_ff,
        encoder_attention_heads=job.num_heads,
        decoder_attention_heads=job.num_heads,
        max_position_embeddings=job.max_length,
        activation_function="relu",
        dropout=job.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        tie_word_embeddings=True,
        share_encoder_decoder_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
    )


if __name__ == "__main__":
    serve(build)
