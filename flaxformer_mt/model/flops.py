"""Model FLOPs by formula: only the matrix products of the paper's equations.

Other work (recomputation under `remat`, padding, layer normalisation, softmax, the optimizer) isn't
counted, so shares of a chip's peak can be compared between programs (PaLM, arXiv 2204.02311,
appendix B).
"""

from flaxformer_mt.config.schema import ModelConfig

# Each forward product has two of the same size in the backward pass: its operands' gradients.
TRAINING = 3


def forward_flops(
    config: ModelConfig,
    tgt_vocab_size: int,
    *,
    src_tokens: float,
    tgt_tokens: float,
    src_keys: float,
    tgt_keys: float,
) -> dict[str, float]:
    """FLOPs of one forward pass by part (a multiply and an add are two), softmax matrix included.

    `src_tokens` and `tgt_tokens` are positions of the whole batch; each attends to `src_keys`
    positions of the source or `tgt_keys` of the target. A causal mask doesn't halve that, since the
    products compute the other half too. For full rows these are `rows * src_length`, `rows *
    tgt_length`, `src_length`, `tgt_length`; for the useful work of a padded batch, its tokens and
    the mean length of a sentence.
    """
    d_model, heads, d_k, d_v = config.d_model, config.num_heads, config.d_k, config.d_v

    def attention(queries: float, memory: float, keys: float) -> float:
        """Projections of `queries` and `memory` positions, scores over `keys` and their mean."""
        kernel = d_model * heads * (d_k + d_v)
        return 2 * (queries * kernel + memory * kernel + queries * keys * heads * (d_k + d_v))

    feed_forward = 2 * 2 * d_model * config.d_ff
    encoder, decoder = config.encoder_layers, config.decoder_layers
    return {
        "encoder self_attention": encoder * attention(src_tokens, src_tokens, src_keys),
        "encoder feed_forward": encoder * src_tokens * feed_forward,
        "decoder self_attention": decoder * attention(tgt_tokens, tgt_tokens, tgt_keys),
        "decoder cross_attention": decoder * attention(tgt_tokens, src_tokens, src_keys),
        "decoder feed_forward": decoder * tgt_tokens * feed_forward,
        "softmax": 2 * tgt_tokens * tgt_vocab_size * d_model,
    }


def training_flops(config: ModelConfig, tgt_vocab_size: int, **sizes: float) -> float:
    """FLOPs of forward and backward pass; arguments as in `forward_flops`."""
    return TRAINING * sum(forward_flops(config, tgt_vocab_size, **sizes).values())
