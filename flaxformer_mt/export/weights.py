"""A model's weights as plain matrices: between our parameter tree and other programs' forms.

All arrays are float32 NumPy. A kernel is [in, out]; the columns of a projection to heads are head
after head, each of the same width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model import softmax_bias, softmax_table
from flaxformer_mt.model.embedding import SOFTMAX_BIAS, SOFTMAX_TABLE, SOURCE_TABLE, TARGET_TABLE
from flaxformer_mt.model.parameters import stack_layers, unstack_layers

Matrix = Float[np.ndarray, "in out"]
Vector = Float[np.ndarray, " size"]


@dataclasses.dataclass(frozen=True)
class Linear:
    """x @ kernel + bias; the paper's projections have no bias."""

    kernel: Matrix
    bias: Vector | None


@dataclasses.dataclass(frozen=True)
class Norm:
    """Layer normalisation: scale and bias, [d_model]."""

    scale: Vector
    bias: Vector


@dataclasses.dataclass(frozen=True)
class Attention:
    """Projections to heads and back, and the norm of the sub-layer."""

    query: Linear
    key: Linear
    value: Linear
    out: Linear
    norm: Norm


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer; `cross_attention` in the decoder alone."""

    self_attention: Attention
    cross_attention: Attention | None
    inner: Linear
    outer: Linear
    norm: Norm


@dataclasses.dataclass(frozen=True)
class Stack:
    """Encoder or decoder: its table of tokens, learned positions if it has them, and layers."""

    embedding: Float[np.ndarray, "types d_model"]
    positions: Float[np.ndarray, "positions d_model"] | None
    layers: tuple[Layer, ...]
    norm: Norm | None


@dataclasses.dataclass(frozen=True)
class Weights:
    """A whole model; tied tables are equal arrays."""

    encoder: Stack
    decoder: Stack
    softmax: Float[np.ndarray, "types d_model"]
    softmax_bias: Vector | None


def from_params(
    params: Mapping[str, Any], config: ModelConfig, *, src_types: int, tgt_types: int
) -> Weights:
    """The weights of a tree under "params", scanned or not, without rows that stand for no type."""
    tree: Any = jax.tree.map(lambda leaf: np.array(leaf, np.float32), dict(params))
    if config.scan_layers:
        tree = jax.tree.map(np.asarray, unstack_layers(tree))
    tables = tree["embedding"]
    bias = softmax_bias(tree, config)
    return Weights(
        encoder=_stack(
            tree["encoder"],
            tables[SOURCE_TABLE[config.tie]][:src_types],
            tables.get("src_positions"),
        ),
        decoder=_stack(
            tree["decoder"],
            tables[TARGET_TABLE[config.tie]][:tgt_types],
            tables.get("tgt_positions"),
        ),
        softmax=np.asarray(softmax_table(tree, config)[:tgt_types]),
        softmax_bias=None if bias is None else np.asarray(bias[:tgt_types]),
    )


def to_params(weights: Weights, config: ModelConfig) -> dict[str, Any]:
    """The tree under "params" of a model of this config: the inverse of `from_params`.

    `config.vocab_multiple` must be 1.
    """
    tables: dict[str, Any] = {
        SOURCE_TABLE[config.tie]: weights.encoder.embedding,
        TARGET_TABLE[config.tie]: weights.decoder.embedding,
        SOFTMAX_TABLE[config.tie]: weights.softmax,
    }
    if config.positions == "learned":
        tables["src_positions"] = weights.encoder.positions
        tables["tgt_positions"] = weights.decoder.positions
    if config.logits_bias:
        tables[SOFTMAX_BIAS] = weights.softmax_bias
    tree = {
        "embedding": tables,
        "encoder": _stack_tree(weights.encoder, config),
        "decoder": _stack_tree(weights.decoder, config),
    }
    if config.scan_layers:
        tree = jax.tree.map(np.asarray, stack_layers(tree))
    return tree


def reorder_channels(weights: Weights, order: np.ndarray) -> Weights:
    """The same function of token ids with the channels of d_model in another order.

    Channel `n` of the result is channel `order[n]` of the weights given. Nothing but position
    encodings tells channels apart, so that a model with other sinusoids is this one, reordered.
    """
    return map_channels(weights, lambda array, axis: np.take(array, order, axis=axis))


def map_channels(weights: Weights, change: Callable[[np.ndarray, int], np.ndarray]) -> Weights:
    """`change(array, axis)` of every array that has d_model for an axis, at that axis."""

    def into(linear: Linear) -> Linear:
        return dataclasses.replace(linear, kernel=change(linear.kernel, 0))

    def out_of(linear: Linear) -> Linear:
        bias = None if linear.bias is None else change(linear.bias, 0)
        return Linear(change(linear.kernel, 1), bias)

    def norm(norm: Norm) -> Norm:
        return Norm(change(norm.scale, 0), change(norm.bias, 0))

    def attention(attention: Attention) -> Attention:
        return Attention(
            query=into(attention.query),
            key=into(attention.key),
            value=into(attention.value),
            out=out_of(attention.out),
            norm=norm(attention.norm),
        )

    def layer(layer: Layer) -> Layer:
        cross = layer.cross_attention
        return Layer(
            self_attention=attention(layer.self_attention),
            cross_attention=None if cross is None else attention(cross),
            inner=into(layer.inner),
            outer=out_of(layer.outer),
            norm=norm(layer.norm),
        )

    def stack(stack: Stack) -> Stack:
        return Stack(
            embedding=change(stack.embedding, 1),
            positions=None if stack.positions is None else change(stack.positions, 1),
            layers=tuple(layer(one) for one in stack.layers),
            norm=None if stack.norm is None else norm(stack.norm),
        )

    return Weights(
        encoder=stack(weights.encoder),
        decoder=stack(weights.decoder),
        softmax=change(weights.softmax, 1),
        softmax_bias=weights.softmax_bias,
    )


def interleaved_from_halves(d_model: int) -> np.ndarray:
    """The order that makes sinusoids in halves, sin | cos, into the paper's sin, cos, sin, cos."""
    return np.arange(d_model).reshape(2, d_model // 2).T.ravel()


def halves_from_interleaved(d_model: int) -> np.ndarray:
    """The inverse order of `interleaved_from_halves`."""
    return np.arange(d_model).reshape(d_model // 2, 2).T.ravel()


def _stack(tree: Mapping[str, Any], embedding: np.ndarray, positions: Any) -> Stack:
    names = sorted(
        (name for name in tree if name.startswith("layers_")),
        key=lambda name: int(name.rpartition("_")[2]),
    )
    return Stack(
        embedding=np.ascontiguousarray(embedding),
        positions=positions,
        layers=tuple(_layer(tree[name]) for name in names),
        norm=_norm(tree["norm"]) if "norm" in tree else None,
    )


def _layer(tree: Mapping[str, Any]) -> Layer:
    feed_forward = tree["feed_forward"]
    return Layer(
        self_attention=_attention(tree, "self_attention"),
        cross_attention=_attention(tree, "cross_attention") if "cross_attention" in tree else None,
        inner=Linear(feed_forward["w_in"], feed_forward["b_in"]),
        outer=Linear(feed_forward["w_out"], feed_forward["b_out"]),
        norm=_norm(tree["feed_forward_residual"]["norm"]),
    )


def _attention(tree: Mapping[str, Any], name: str) -> Attention:
    part = tree[name]

    def inward(projection: str) -> Linear:
        kernel, bias = part[projection], part.get(f"{projection}_bias")
        return Linear(
            kernel.reshape(kernel.shape[0], -1), None if bias is None else bias.reshape(-1)
        )

    out = part["out"]
    return Attention(
        query=inward("query"),
        key=inward("key"),
        value=inward("value"),
        out=Linear(out.reshape(-1, out.shape[-1]), part.get("out_bias")),
        norm=_norm(tree[f"{name}_residual"]["norm"]),
    )


def _norm(tree: Mapping[str, Any]) -> Norm:
    return Norm(tree["scale"], tree["bias"])


def _stack_tree(stack: Stack, config: ModelConfig) -> dict[str, Any]:
    tree: dict[str, Any] = {
        f"layers_{number}": _layer_tree(layer, config) for number, layer in enumerate(stack.layers)
    }
    if stack.norm is not None:
        tree["norm"] = _norm_tree(stack.norm)
    return tree


def _layer_tree(layer: Layer, config: ModelConfig) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "feed_forward": {
            "w_in": layer.inner.kernel,
            "b_in": layer.inner.bias,
            "w_out": layer.outer.kernel,
            "b_out": layer.outer.bias,
        },
        "feed_forward_residual": {"norm": _norm_tree(layer.norm)},
    }
    attentions = {"self_attention": layer.self_attention, "cross_attention": layer.cross_attention}
    for name, attention in attentions.items():
        if attention is not None:
            tree[name] = _attention_tree(attention, config)
            tree[f"{name}_residual"] = {"norm": _norm_tree(attention.norm)}
    return tree


def _attention_tree(attention: Attention, config: ModelConfig) -> dict[str, Any]:
    heads, widths = config.num_heads, {"query": config.d_k, "key": config.d_k, "value": config.d_v}
    tree: dict[str, Any] = {"out": attention.out.kernel.reshape(heads, config.d_v, config.d_model)}
    if config.attention_bias:
        tree["out_bias"] = attention.out.bias
    for name, width in widths.items():
        linear: Linear = getattr(attention, name)
        tree[name] = linear.kernel.reshape(config.d_model, heads, width)
        if config.attention_bias and linear.bias is not None:
            tree[f"{name}_bias"] = linear.bias.reshape(heads, width)
    return tree


def _norm_tree(norm: Norm) -> dict[str, Any]:
    return {"scale": norm.scale, "bias": norm.bias}
