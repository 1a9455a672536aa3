"""The paper's encoder-decoder in float64 NumPy, one sentence and one head at a time.

It shares nothing with the package but the names in the parameter tree: no masks (a sentence is cut
out of its row instead), no batch axis, no JAX.
"""

import numpy as np


def forward(params, config, src, tgt_in, src_segment_ids, tgt_segment_ids):
    """Hidden states [rows, tgt_length, d_model]; zeros where the target is padding."""
    params = to_float64(params)
    hidden = np.zeros((*tgt_in.shape, config.d_model))
    for row in range(src.shape[0]):
        for segment in sorted(set(tgt_segment_ids[row]) - {0}):
            of_src = src_segment_ids[row] == segment
            of_tgt = tgt_segment_ids[row] == segment
            encoded = encode(params, config, src[row, of_src])
            hidden[row, of_tgt] = decode(params, config, tgt_in[row, of_tgt], encoded)
    return hidden


def encode(params, config, tokens):
    table = {"all": "shared", "target": "source", "none": "source"}[config.tie]
    x = embed(params["embedding"], config, table, "src_positions", tokens)
    for layer in layers_of(params["encoder"]):
        attention = lambda z, layer=layer: attend(layer["self_attention"], config, z, z)  # noqa: E731
        x = residual(layer["self_attention_residual"], config, x, attention)
        x = feed_forward_block(layer, config, x)
    return final_norm(params["encoder"], config, x)


def decode(params, config, tokens, encoded):
    table = {"all": "shared", "target": "target", "none": "target"}[config.tie]
    x = embed(params["embedding"], config, table, "tgt_positions", tokens)
    for layer in layers_of(params["decoder"]):

        def self_attention(z, layer=layer):
            return attend(layer["self_attention"], config, z, z, causal=True)

        def cross_attention(z, layer=layer):
            return attend(layer["cross_attention"], config, z, encoded)

        x = residual(layer["self_attention_residual"], config, x, self_attention)
        x = residual(layer["cross_attention_residual"], config, x, cross_attention)
        x = feed_forward_block(layer, config, x)
    return final_norm(params["decoder"], config, x)


def embed(embedding, config, table, positions, tokens):
    x = embedding[table][tokens] * np.sqrt(config.d_model)
    if config.positions == "learned":
        factor = np.sqrt(config.d_model) if config.position_scale == "sqrt_d_model" else 1
        return x + embedding[positions][: len(tokens)] * factor
    if config.positions == "tensor2tensor":
        return x + np.array([spread_sinusoid(pos, config.d_model) for pos in range(len(tokens))])
    return x + np.array([sinusoid(pos, config.d_model) for pos in range(len(tokens))])


def sinusoid(pos, d_model):
    """Section 3.5, as printed."""
    encoding = np.zeros(d_model)
    for i in range(d_model):
        angle = pos / 10000 ** (2 * (i // 2) / d_model)
        encoding[i] = np.sin(angle) if i % 2 == 0 else np.cos(angle)
    return encoding


def spread_sinusoid(pos, d_model):
    """tensor2tensor's: the last wavelength is exactly 10000 times the first."""
    encoding = np.zeros(d_model)
    increment = np.log(10000) / (d_model / 2 - 1)
    for i in range(d_model):
        angle = pos * np.exp(-increment * (i // 2))
        encoding[i] = np.sin(angle) if i % 2 == 0 else np.cos(angle)
    return encoding


def attend(weights, config, x, memory, causal=False):
    def bias(name):
        heads = np.zeros(config.num_heads)
        return weights[f"{name}_bias"] if config.attention_bias else heads

    out = np.zeros_like(x) + (weights["out_bias"] if config.attention_bias else 0)
    for head in range(config.num_heads):
        queries = x @ weights["query"][:, head] + bias("query")[head]
        keys = memory @ weights["key"][:, head] + bias("key")[head]
        values = memory @ weights["value"][:, head] + bias("value")[head]
        out += probabilities(queries, keys, config, causal) @ values @ weights["out"][head]
    return out


def probabilities(queries, keys, config, causal):
    scores = queries @ keys.T / np.sqrt(config.d_k)
    if causal:
        scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def feed_forward_block(layer, config, x):
    weights = layer["feed_forward"]

    def feed_forward(z):
        inner = activate(config.activation, z @ weights["w_in"] + weights["b_in"])
        return inner @ weights["w_out"] + weights["b_out"]

    return residual(layer["feed_forward_residual"], config, x, feed_forward)


def activate(name, x):
    return np.maximum(x, 0) if name == "relu" else x / (1 + np.exp(-x))


def residual(weights, config, x, sublayer):
    if config.norm == "post":
        return layer_norm(weights["norm"], config, x + sublayer(x))
    return x + sublayer(layer_norm(weights["norm"], config, x))


def layer_norm(weights, config, x):
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + config.norm_epsilon) * weights["scale"] + weights["bias"]


def final_norm(stack, config, x):
    return layer_norm(stack["norm"], config, x) if config.norm == "pre" else x


def layers_of(stack):
    names = [name for name in stack if name.startswith("layers_")]
    return [stack[name] for name in sorted(names, key=lambda name: int(name.split("_")[1]))]


def to_float64(tree):
    if isinstance(tree, dict):
        return {name: to_float64(leaf) for name, leaf in tree.items()}
    return np.asarray(tree, np.float64)
