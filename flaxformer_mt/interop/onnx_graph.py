"""A model's two ONNX graphs, with the inputs and outputs that optimum gives a Marian model.

The encoder maps `input_ids` and `attention_mask` to `last_hidden_state`. The decoder maps tokens,
the encoder's output and a cache to logits and the longer cache. In the first step its input
`use_cache_branch` is false: then it ignores the cache, whatever is in it, and computes the source's
keys and values. Otherwise it takes these from the cache and doesn't read the encoder's output.

Token ids are those of a `Numbering`, whose `start` has the begin mark's embedding. Shapes in
comments: b sentences, s source and t new target tokens, h heads, k d_model / h. Source: the Marian
form of `TextSeq2SeqOnnxConfig` and `merge_decoders` in optimum-onnx 0.1.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from flaxformer_mt.config import ModelConfig
from flaxformer_mt.data.vocabulary import BOS, UNK
from flaxformer_mt.interop.marian import Numbering, logits_bias
from flaxformer_mt.interop.onnx_nodes import GraphBuilder
from flaxformer_mt.interop.weights import Weights, tables
from flaxformer_mt.model.attention import MASKED
from flaxformer_mt.model.embedding import SOFTMAX_BIAS, fixed_positions, position_factor
from flaxformer_mt.model.parameters import layer_name

_ENCODER, _DECODER = "encoder", "decoder"  # of a cache
# Names of sizes.
_BATCH = "batch_size"
_SOURCE = "encoder_sequence_length"
_TARGET = "decoder_sequence_length"
_PAST = "past_decoder_sequence_length"
# A sub-layer: from the name of its input and its path to the name of its output.
_Sublayer = Callable[[str, str], str]


def encoder(weights: Weights, config: ModelConfig, numbering: Numbering) -> Any:
    """The encoder's ModelProto. Heads are d_model / num_heads wide. Raises ExportError if the
    package onnx is missing."""
    graph = GraphBuilder()
    layers = _Layers(graph, weights, config)
    source, _, _ = tables(weights, config)
    # A type of the target alone is unknown in a source.
    table = numbering.spread(source, numbering.src, source[UNK])

    positions = layers.range(layers.zero(), layers.size("input_ids", 1))
    x = layers.embedded(graph.array("embedding/source", table), "src", positions)
    bias = layers.bias_of_source("attention_mask")
    for number in range(config.encoder_layers):
        path = f"encoder/{layer_name(number)}"
        x = layers.residual(x, f"{path}/self_attention", layers.attention_to_itself(bias))
        x = layers.residual(x, f"{path}/feed_forward", layers.feed_forward)
    graph.node("Identity", layers.last_norm(x, "encoder"), name="last_hidden_state")

    return graph.model(
        "encoder",
        inputs=[
            graph.integers("input_ids", _BATCH, _SOURCE),
            graph.integers("attention_mask", _BATCH, _SOURCE),
        ],
        outputs=[graph.floats("last_hidden_state", _BATCH, _SOURCE, config.d_model)],
    )


def decoder(weights: Weights, config: ModelConfig, numbering: Numbering) -> Any:
    """The decoder's ModelProto, as `encoder`."""
    graph = GraphBuilder()
    layers = _Layers(graph, weights, config)
    _, target, softmax = tables(weights, config)
    table = numbering.spread(target, numbering.tgt, 0.0)
    table[numbering.start] = target[BOS]
    target_name = softmax_name = graph.array("embedding/target", table)
    if softmax is not target:
        rows = numbering.spread(softmax, numbering.tgt, 0.0)
        softmax_name = graph.array("embedding/softmax", rows)

    uses_cache = graph.cast("use_cache_branch", "INT64")  # 0 or 1
    past = graph.node("Mul", layers.size("past_key_values.0.decoder.key", 2), uses_cache)
    length = graph.node("Add", past, layers.size("input_ids", 1))
    # Not a range from `past`: of its rows ONNX Runtime makes a slice, and one beyond the table is
    # empty instead of an error (findings/onnxruntime_gather_of_range.sh).
    new = layers.range(layers.zero(), layers.size("input_ids", 1))
    positions = graph.node("Add", new, past)  # [t]
    x = layers.embedded(target_name, "tgt", positions)
    visible = layers.not_later(positions, length)
    bias, source_bias = layers.bias(visible), layers.bias_of_source("encoder_attention_mask")
    layers.add_source_cache()
    for number in range(config.decoder_layers):
        path = f"decoder/{layer_name(number)}"
        to_target = layers.attention_to_target(number, past, bias)
        x = layers.residual(x, f"{path}/self_attention", to_target)
        to_source = layers.attention_to_source(number, source_bias)
        x = layers.residual(x, f"{path}/cross_attention", to_source)
        x = layers.residual(x, f"{path}/feed_forward", layers.feed_forward)
    graph.array(f"embedding/{SOFTMAX_BIAS}", logits_bias(weights, numbering))
    layers.add_logits(layers.last_norm(x, "decoder"), softmax_name, len(numbering.pieces))

    return graph.model(
        "decoder",
        inputs=[
            graph.integers("encoder_attention_mask", _BATCH, _SOURCE),
            graph.integers("input_ids", _BATCH, _TARGET),
            graph.floats("encoder_hidden_states", _BATCH, _SOURCE, config.d_model),
            *layers.caches("past_key_values", _PAST),
            graph.booleans("use_cache_branch", 1),
        ],
        outputs=[
            graph.floats("logits", _BATCH, _TARGET, len(numbering.pieces)),
            *layers.caches("present", f"{_PAST} + {_TARGET}"),
        ],
    )


class _Layers:
    """Adds a model's parts to a graph. Methods take and return names of values."""

    def __init__(self, graph: GraphBuilder, weights: Weights, config: ModelConfig) -> None:
        self._graph, self._weights, self._config = graph, weights, config
        self._width = config.d_model // config.num_heads

    def embedded(self, table: str, side: str, positions: str) -> str:
        """table[token] * sqrt(d_model) + position encoding, [b, length, d_model]."""
        graph, config = self._graph, self._config
        encoding = self._weights.get(f"embedding/{side}_positions")
        if encoding is None:
            encoding = fixed_positions(config, config.max_length)
        else:
            encoding = encoding * np.float32(position_factor(config))
        factor = graph.array("embedding/factor", np.float32(math.sqrt(config.d_model)))
        scaled = graph.node("Mul", graph.node("Gather", table, "input_ids"), factor)
        rows = graph.node("Gather", graph.array("embedding/positions", encoding), positions)
        return graph.node("Add", scaled, rows)

    def residual(self, x: str, path: str, sublayer: _Sublayer) -> str:
        """The sub-layer at `path` with its sum and layer normalisation."""
        norm = f"{path}_residual/norm"
        if self._config.norm == "pre":
            return self._graph.node("Add", x, sublayer(self._norm(x, norm), path))
        return self._norm(self._graph.node("Add", x, sublayer(x, path)), norm)

    def last_norm(self, x: str, stack: str) -> str:
        """Pre-LN leaves the residual sum un-normalised."""
        return self._norm(x, f"{stack}/norm") if self._config.norm == "pre" else x

    def _norm(self, x: str, path: str) -> str:
        parts = (self._weight(f"{path}/scale"), self._weight(f"{path}/bias"))
        epsilon = self._config.norm_epsilon
        return self._graph.node("LayerNormalization", x, *parts, epsilon=epsilon)

    def feed_forward(self, x: str, path: str) -> str:
        hidden = self._product(x, f"{path}/w_in", f"{path}/b_in")
        if self._config.activation == "silu":
            active = self._graph.node("Mul", hidden, self._graph.node("Sigmoid", hidden))
        else:
            active = self._graph.node("Relu", hidden)
        return self._product(active, f"{path}/w_out", f"{path}/b_out")

    def attention_to_itself(self, bias: str) -> _Sublayer:
        def attend(x: str, path: str) -> str:
            keys, values = self._heads(x, f"{path}/key"), self._heads(x, f"{path}/value")
            return self._attention(x, keys, values, bias, path)

        return attend

    def attention_to_target(self, layer: int, past: str, bias: str) -> _Sublayer:
        """A decoder layer's self-attention, to `past` tokens of the cache and to the new ones."""

        def extended(x: str, path: str, role: str) -> str:
            graph = self._graph
            axis = graph.array("cache/axis", np.array([2]))
            cached = f"past_key_values.{layer}.decoder.{role}"
            kept = graph.node("Slice", cached, self.zero(), past, axis)
            parts = kept, self._heads(x, f"{path}/{role}")
            return graph.node("Concat", *parts, axis=2, name=f"present.{layer}.decoder.{role}")

        def attend(x: str, path: str) -> str:
            keys, values = extended(x, path, "key"), extended(x, path, "value")
            return self._attention(x, keys, values, bias, path)

        return attend

    def attention_to_source(self, layer: int, bias: str) -> _Sublayer:
        keys, values = f"present.{layer}.encoder.key", f"present.{layer}.encoder.value"
        return lambda x, path: self._attention(x, keys, values, bias, path)

    def add_source_cache(self) -> None:
        """Adds the source's keys and values: those of the cache or, without one, new ones."""
        shape = (_BATCH, self._config.num_heads, _SOURCE, self._width)

        def computed(output: str) -> str:
            _, layer, _, role = output.split(".")
            path = f"decoder/{layer_name(int(layer))}/cross_attention/{role}"
            return self._heads("encoder_hidden_states", path)

        def cached(output: str) -> str:
            return self._graph.node("Identity", output.replace("present", "past_key_values"))

        outputs = {name: shape for name, stack in self._cache_names("present") if stack == _ENCODER}
        self._graph.choice("use_cache_branch", outputs, if_true=cached, if_false=computed)

    def add_logits(self, x: str, table: str, types: int) -> None:
        """Adds the output `logits`, [b, t, types]."""
        graph = self._graph
        rows = graph.array("logits/rows", np.array([-1, self._config.d_model]))
        flat = graph.node(
            "Gemm", graph.node("Reshape", x, rows), table, f"embedding/{SOFTMAX_BIAS}", transB=1
        )
        count = graph.array("logits/types", np.array([types]))
        shape = graph.node("Concat", graph.node("Shape", "input_ids"), count, axis=0)
        graph.node("Reshape", flat, shape, name="logits")

    def _attention(self, x: str, keys: str, values: str, bias: str, path: str) -> str:
        """softmax(Q K^T / sqrt(k) + bias) V, projected."""
        graph = self._graph
        factor = graph.array("attention/factor", np.float32(self._width**-0.5))
        queries = graph.node("Mul", self._heads(x, f"{path}/query"), factor)  # [b, h, t, k]
        transposed = graph.node("Transpose", keys, perm=[0, 1, 3, 2])  # [b, h, k, keys]
        scores = graph.node("Add", graph.node("MatMul", queries, transposed), bias)
        heads = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), values)
        by_token = graph.node("Transpose", heads, perm=[0, 2, 1, 3])  # [b, t, h, k]
        sizes = graph.array("attention/joined", np.array([0, 0, self._config.d_model]))
        return self._product(graph.node("Reshape", by_token, sizes), f"{path}/out")

    def _heads(self, x: str, path: str) -> str:
        """A projection, [b, h, length, k]."""
        sizes = np.array([0, 0, self._config.num_heads, self._width])
        shape = self._graph.array("attention/heads", sizes)
        by_token = self._graph.node("Reshape", self._product(x, path), shape)
        return self._graph.node("Transpose", by_token, perm=[0, 2, 1, 3])

    def _product(self, x: str, path: str, bias: str = "") -> str:
        """`x` times a kernel as a matrix, plus a bias (default: PATH_bias) if the model has it."""
        kernel = self._weights[path]
        inputs = math.prod(kernel.shape[:-1]) if path.endswith("/out") else len(kernel)
        matrix = self._graph.array(path, kernel.reshape(inputs, -1))
        product = self._graph.node("MatMul", x, matrix)
        bias = bias or f"{path}_bias"
        if bias not in self._weights:
            return product
        return self._graph.node("Add", product, self._weight(bias))

    def _weight(self, path: str) -> str:
        """A bias or scale, with its heads side by side."""
        return self._graph.array(path, self._weights[path].ravel())

    def bias_of_source(self, mask: str) -> str:
        """The bias of a mask of the source, [b, 1, 1, s]."""
        axes = self._graph.array("attention/axes", np.array([1, 2]))
        bias = self.bias(self._graph.cast(mask, "BOOL"))
        return self._graph.node("Unsqueeze", bias, axes)

    def not_later(self, positions: str, length: str) -> str:
        """Whether a position sees each of `length` tokens, [t, tokens]."""
        axis = self._graph.array("attention/axis", np.array([1]))
        column = self._graph.node("Unsqueeze", positions, axis)
        return self._graph.node("LessOrEqual", self.range(self.zero(), length), column)

    def bias(self, visible: str) -> str:
        """What is added to scores: 0 where a token is visible."""
        allowed = self._graph.array("attention/allowed", np.float32(0))
        masked = self._graph.array("attention/masked", np.float32(MASKED))
        return self._graph.node("Where", visible, allowed, masked)

    def zero(self) -> str:
        """[1]"""
        return self._graph.array("zero", np.array([0]))

    def size(self, name: str, axis: int) -> str:
        """[1]"""
        return self._graph.node("Shape", name, start=axis, end=axis + 1)

    def range(self, start: str, end: str) -> str:
        """Integers from `start` to before `end`, both [1]."""
        step = self._graph.array("range/step", np.array(1))
        ends = self._graph.node("Squeeze", start), self._graph.node("Squeeze", end)
        return self._graph.node("Range", *ends, step)

    def caches(self, prefix: str, length: str) -> list[Any]:
        """What the file says of a cache whose target has `length` tokens."""
        lengths = {_DECODER: length, _ENCODER: _SOURCE}
        heads = self._config.num_heads
        return [
            self._graph.floats(name, _BATCH, heads, lengths[stack], self._width)
            for name, stack in self._cache_names(prefix)
        ]

    def _cache_names(self, prefix: str) -> list[tuple[str, str]]:
        """Names such as `present.0.decoder.key`, and the stack whose tokens each is of."""
        return [
            (f"{prefix}.{layer}.{stack}.{role}", stack)
            for layer in range(self._config.decoder_layers)
            for stack in (_DECODER, _ENCODER)
            for role in ("key", "value")
        ]
