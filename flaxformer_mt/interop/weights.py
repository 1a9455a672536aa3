"""A model's parameters by path, to convert to and from other programs' formats.

Paths are those of the unscanned parameter tree, such as `decoder/layers_0/cross_attention/query`;
arrays are float32 NumPy of the tree's shapes.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from flaxformer_mt.config import ModelConfig
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, package_of_extra
from flaxformer_mt.model.embedding import SOFTMAX_BIAS, SOFTMAX_TABLE, SOURCE_TABLE, TARGET_TABLE
from flaxformer_mt.model.parameters import unstack_layers

Weights = dict[str, np.ndarray]
_PROJECTIONS = ("query", "key", "value", "out")
# Arrays by the last part of their path. Into heads or the inner layer: d_model is the first axis.
_INTO = {"query", "key", "value", "w_in"}
_WITHOUT_D_MODEL = {"query_bias", "key_bias", "value_bias", "b_in", SOFTMAX_BIAS}


def from_model(translator: Translator) -> Weights:
    """The weights of a model, scanned or not, without padding rows."""
    model, config = translator.model, translator.model.config
    tree: Any = jax.tree.map(lambda leaf: np.array(leaf, np.float32), dict(translator.params))
    if config.scan_layers:
        tree = jax.tree.map(np.asarray, unstack_layers(tree))
    weights: Weights = dict(flatten_dict(tree, sep="/"))
    types = {
        SOURCE_TABLE[config.tie]: model.src_vocab_size,
        TARGET_TABLE[config.tie]: model.tgt_vocab_size,
        SOFTMAX_TABLE[config.tie]: model.tgt_vocab_size,
        SOFTMAX_BIAS: model.tgt_vocab_size,
    }
    for name, rows in types.items():
        if (path := f"embedding/{name}") in weights:
            weights[path] = weights[path][:rows]
    return weights


def save_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays in any memory layout, as PyTorch's programs read them.

    Raises ExportError if safetensors is missing.
    """
    purpose = "weights for Hugging Face are written by the package"
    safetensors = package_of_extra("safetensors.numpy", purpose)
    # safetensors 0.8 writes memory as it lies: transposed arrays get wrong values without an error.
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    safetensors.save_file(contiguous, str(path), metadata={"format": "pt"})


def tables(weights: Weights, config: ModelConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tables [types, d_model] of source, target and softmax; tied ones are one array."""
    source = weights[f"embedding/{SOURCE_TABLE[config.tie]}"]
    target = weights[f"embedding/{TARGET_TABLE[config.tie]}"]
    softmax = weights[f"embedding/{SOFTMAX_TABLE[config.tie]}"]
    return source, target, softmax


def reorder_channels(weights: Weights, order: np.ndarray) -> Weights:
    """The same function of token ids with channel `n` of d_model taken from `order[n]`: only
    position encodings tell channels apart."""
    reordered = {}
    for path, array in weights.items():
        name = path.rpartition("/")[2]
        if name in _WITHOUT_D_MODEL:
            reordered[path] = array
        else:
            reordered[path] = np.take(array, order, axis=0 if name in _INTO else -1)
    return reordered


def interleaved_from_halves(d_model: int) -> np.ndarray:
    """The order that turns sinusoids in halves, sin | cos, into sin, cos, sin, cos."""
    return np.arange(d_model).reshape(2, d_model // 2).T.ravel()


def usual_heads(weights: Weights, config: ModelConfig, program: str) -> Weights:
    """The weights with d_k = d_v = d_model / num_heads: narrower heads are padded with zeros, and
    queries scaled for the other sqrt(d_k). Raises ExportError for wider heads."""
    width = config.d_model // config.num_heads
    if config.d_model % config.num_heads or max(config.d_k, config.d_v) > width:
        raise ExportError(
            f"{program} needs model.d_k = {config.d_k} and model.d_v = {config.d_v} to be "
            f"{config.d_model} / {config.num_heads}"
        )
    if config.d_k == config.d_v == width:
        return weights

    padded = dict(weights)
    for path, array in weights.items():
        name = path.rpartition("/")[2].removesuffix("_bias")
        if name not in _PROJECTIONS or path.endswith("out_bias"):
            continue
        axis = -2 if name == "out" else -1
        padding = [(0, 0)] * array.ndim
        padding[axis] = (0, width - array.shape[axis])
        scale = math.sqrt(width / config.d_k) if name == "query" else 1.0
        padded[path] = np.pad(array, padding) * np.float32(scale)
    return padded
