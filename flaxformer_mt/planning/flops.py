"""Floating-point operations of a step by formula: what the model asks for, whatever computes it."""

from __future__ import annotations

from flaxformer_mt.config import ModelConfig
from flaxformer_mt.data.plan import Shape


def forward_flops(config: ModelConfig, shape: Shape, tgt_vocab_size: int) -> dict[str, int]:
    """Multiplications and additions in the matrix products of one forward pass, by part.

    With R rows, S source and T target positions a row (padding is computed, hence counted),
    d = d_model, f = d_ff, h heads, a = h * d_k, b = h * d_v, and 2 operations a product term:

      encoder projections   N_enc * 4 R S d (a + b)             query, key, value, out
      encoder scores        N_enc * 2 R S S (a + b)             Q K^T and weights V
      encoder feed_forward  N_enc * 4 R S d f
      decoder projections   N_dec * 4 R T d (a + b)             self-attention
      decoder scores        N_dec * 2 R T T (a + b)             whole rows, the masked half too
      cross projections     N_dec * 2 R (T + S) d (a + b)       query, out of T; key, value of S
      cross scores          N_dec * 2 R T S (a + b)
      decoder feed_forward  N_dec * 4 R T d f
      softmax               2 R T d V

    Left out: embedding lookups, norms, dropout, softmax: no matrix products.
    """
    rows, src, tgt = shape.rows, shape.src_length, shape.tgt_length
    d, f = config.d_model, config.d_ff
    width = config.num_heads * (config.d_k + config.d_v)
    encoder, decoder = config.encoder_layers, config.decoder_layers
    return {
        "encoder projections": encoder * 4 * rows * src * d * width,
        "encoder scores": encoder * 2 * rows * src * src * width,
        "encoder feed_forward": encoder * 4 * rows * src * d * f,
        "decoder projections": decoder * 4 * rows * tgt * d * width,
        "decoder scores": decoder * 2 * rows * tgt * tgt * width,
        "cross projections": decoder * 2 * rows * (tgt + src) * d * width,
        "cross scores": decoder * 2 * rows * tgt * src * width,
        "decoder feed_forward": decoder * 4 * rows * tgt * d * f,
        "softmax": 2 * rows * tgt * d * tgt_vocab_size,
    }


def step_flops(config: ModelConfig, shape: Shape, tgt_vocab_size: int) -> int:
    """Operations of one update: forward, and twice as much backward (both operands' gradients).

    Work done again under `remat` is not the model's and does not count.
    """
    return 3 * sum(forward_flops(config, shape, tgt_vocab_size).values())
