"""Heads of another width that compute the same."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.export.errors import ExportError
from flaxformer_mt.export.weights import Attention, Linear, Stack, Weights


def usual_heads(weights: Weights, config: ModelConfig, program: str) -> Weights:
    """The weights with d_k = d_v = d_model / num_heads, all that most programs know.

    Narrower heads are filled up with zeros, and queries scaled for the other sqrt(d_k). Raises
    ExportError for wider heads, which no such width can hold.
    """
    width = config.d_model // config.num_heads
    if config.d_model % config.num_heads or max(config.d_k, config.d_v) > width:
        raise ExportError(
            f"{program} divides d_model by the number of heads: model.d_k = {config.d_k} and "
            f"model.d_v = {config.d_v} do not fit into {config.d_model} / {config.num_heads}"
        )
    if config.d_k == config.d_v == width:
        return weights

    def attention(one: Attention) -> Attention:
        scale = math.sqrt(width / config.d_k)
        query = _columns(one.query, config.num_heads, config.d_k, width)
        return Attention(
            query=Linear(
                query.kernel * np.float32(scale),
                None if query.bias is None else query.bias * np.float32(scale),
            ),
            key=_columns(one.key, config.num_heads, config.d_k, width),
            value=_columns(one.value, config.num_heads, config.d_v, width),
            out=Linear(
                _filled(one.out.kernel.T, config.num_heads, config.d_v, width).T, one.out.bias
            ),
            norm=one.norm,
        )

    def stack(one: Stack) -> Stack:
        layers = (
            dataclasses.replace(
                layer,
                self_attention=attention(layer.self_attention),
                cross_attention=None
                if layer.cross_attention is None
                else attention(layer.cross_attention),
            )
            for layer in one.layers
        )
        return dataclasses.replace(one, layers=tuple(layers))

    return dataclasses.replace(
        weights, encoder=stack(weights.encoder), decoder=stack(weights.decoder)
    )


def _columns(linear: Linear, heads: int, width: int, wanted: int) -> Linear:
    bias = None if linear.bias is None else _filled(linear.bias, heads, width, wanted)
    return Linear(_filled(linear.kernel, heads, width, wanted), bias)


def _filled(array: np.ndarray, heads: int, width: int, wanted: int) -> np.ndarray:
    """The last axis, heads of `width`, as heads of `wanted` that end with zeros."""
    parts = array.reshape(*array.shape[:-1], heads, width)
    padding = [(0, 0)] * (parts.ndim - 1) + [(0, wanted - width)]
    return np.pad(parts, padding).reshape(*array.shape[:-1], heads * wanted)
