"""The parameter tree: initialisation, counts by formula and by counting, scanned form."""

import dataclasses
import fnmatch
import functools
import math
import re
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from flaxformer_mt.config.schema import AdapterConfig, ModelConfig
from flaxformer_mt.errors import UserError
from flaxformer_mt.model.embedding import (
    SOFTMAX_BIAS,
    SOFTMAX_TABLE,
    TARGET_TABLE,
    table_rows,
)
from flaxformer_mt.model.stacks import layer_name
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.text_table import aligned

Params = Mapping[str, Any]
STACKS = ("encoder", "decoder")
path_name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
KERNELS = frozenset(("query", "key", "value", "out", "w_in", "w_out"))  # that products take


class AdapterError(UserError):
    """A pattern of adapters that no matrix of a layer matches."""


def initial_params(model: Transformer, key: Array) -> dict[str, Any]:
    """Freshly drawn parameters, each leaf boxed with its logical axis names (`nn.meta.unbox`).

    Pure: `jax.eval_shape` gives the abstract tree, and `jax.jit` with output shardings draws each
    device's part in place. The tree is the one under "params".

    All layers of a stack are drawn at once, as with `scan_layers`: that compiles faster, and both
    forms start from the same numbers.
    """
    ids = jnp.ones((1, 2), jnp.int32)
    scanned = model.clone(config=dataclasses.replace(model.config, scan_layers=True))
    variables = scanned.init(
        {"params": key},
        ids,
        ids,
        src_segment_ids=ids,
        tgt_segment_ids=ids,
        src_positions=ids,
        tgt_positions=ids,
        dropout_key=None,
    )
    params = dict(variables["params"])
    if model.config.scan_layers:
        return params
    for stack in STACKS:
        unnamed = nn.meta.remove_axis(params[stack]["layers"], 0, {nn.PARTITION_NAME: "layers"})
        params[stack] = {**params[stack], "layers": unnamed}
    return unstack_layers(params)


def is_kernel(path: tuple[Any, ...]) -> bool:
    """Whether the parameter at a path of the tree is a layer's matrix, not a vector or table."""
    return path[-1].key in KERNELS


def is_stacked(path: tuple[Any, ...]) -> bool:
    """Whether the parameter at a path of the tree is all layers' (`model.scan_layers`): its first
    axis counts them."""
    return jax.tree_util.DictKey("layers") in path


def kernel_axes(path: tuple[Any, ...], ndim: int) -> tuple[range, range]:
    """The axes of a kernel over which it sums its input, and those that it makes.

    Heads are part of the matrix, stacked layers are not.
    """
    of_matrix = range(is_stacked(path), ndim)
    # Attention's output projection sums over heads and their width; all others over one axis.
    summed = 2 if len(of_matrix) == 3 and path[-1].key == "out" else 1
    return of_matrix[:summed], of_matrix[summed:]


def initial_adapters(params: Params, config: AdapterConfig, key: Array) -> dict[str, Any]:
    """Adapters for the layers' matrices that `config.matrices` names, as `low_rank.merged` takes
    them, boxed like `params`: B is zero and A uniform, so that nothing changes at first.

    Raises AdapterError for a pattern without a match.
    """
    kernels = [
        (path, box)
        for path, box in jax.tree.leaves_with_path(params, is_leaf=_is_box)
        if is_kernel(path)
    ]
    names = [path_name(path) for path, _ in kernels]
    for pattern in config.matrices:
        if not fnmatch.filter(names, pattern):
            of_any_layer = dict.fromkeys(re.sub(r"layers_\d+", "layers_*", name) for name in names)
            raise AdapterError(
                f"'training.adapters.matrices': no matrix of a layer matches '{pattern}'; there "
                f"are {', '.join(of_any_layer)}"
            )

    adapters: dict[str, Any] = {}
    for (path, box), name, own_key in zip(
        kernels, names, jax.random.split(key, len(kernels)), strict=True
    ):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in config.matrices):
            continue
        node = adapters
        for entry in path:
            node = node.setdefault(entry.key, {})
        node |= _adapter(path, box, config.rank, own_key)
    return adapters


def _adapter(
    path: tuple[Any, ...], box: nn.LogicallyPartitioned, rank: int, key: Array
) -> dict[str, Any]:
    """One adapter, with the axis names of its matrix's first input and first output axis."""
    shape = box.value.shape
    sides = kernel_axes(path, len(shape))
    inputs, outputs = (math.prod(shape[axis] for axis in side) for side in sides)
    stack, names = shape[: sides[0].start], box.names[: sides[0].start]
    input_name, output_name = (box.names[side.start] for side in sides)

    bound = inputs**-0.5
    a = jax.random.uniform(key, (*stack, inputs, rank), jnp.float32, -bound, bound)
    b = jnp.zeros((*stack, rank, outputs), jnp.float32)
    return {
        "a": nn.LogicallyPartitioned(a, (*names, input_name, None)),
        "b": nn.LogicallyPartitioned(b, (*names, None, output_name)),
    }


def _is_box(node: Any) -> bool:
    return isinstance(node, nn.LogicallyPartitioned)


def variables_for_steps(params: Params, config: ModelConfig) -> dict[str, Any]:
    """Variables for many calls of `Transformer.decode_step`: kernels are rounded to `config.dtype`
    once, as products would round them in every call: XLA's GPU compiler doesn't move that out of a
    loop. Lookups keep their float32 table."""
    if config.dtype == "float32":
        return {"params": params}

    def rounded(path: tuple[Any, ...], leaf: Array) -> Array:
        return leaf.astype(config.dtype) if path[-1].key in KERNELS else leaf

    decoder = jax.tree_util.tree_map_with_path(rounded, params["decoder"])
    softmax, target = SOFTMAX_TABLE[config.tie], TARGET_TABLE[config.tie]
    tables = params["embedding"]
    embedding = {**tables, softmax: tables[softmax].astype(config.dtype)}
    return {
        "params": {**params, "decoder": decoder, "embedding": embedding},
        "copies": {"embedding": {target: tables[target][None]}},
    }


def count_by_formula(
    config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int
) -> dict[str, int]:
    """Parameters of each part, from the sizes; parts that a model lacks are 0.

    The paper's base and big with 37,000 tied types have 63.0 and 214.2 million in all.
    """
    d_model, d_ff = config.d_model, config.d_ff
    attention = 2 * d_model * config.num_heads * (config.d_k + config.d_v)
    if config.attention_bias:
        attention += config.num_heads * (2 * config.d_k + config.d_v) + d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    final_norm = norm if config.norm == "pre" else 0
    src_rows, tgt_rows = (table_rows(config, size) for size in (src_vocab_size, tgt_vocab_size))
    target_rows = 0 if config.tie == "all" else tgt_rows
    return {
        "embedding": (src_rows + target_rows) * d_model,
        "positions": 2 * config.max_length * d_model if config.positions == "learned" else 0,
        "softmax": (tgt_rows * d_model if config.tie == "none" else 0)
        + (tgt_rows if config.logits_bias else 0),
        "encoder self_attention": config.encoder_layers * attention,
        "encoder feed_forward": config.encoder_layers * feed_forward,
        "encoder norm": config.encoder_layers * 2 * norm + final_norm,
        "decoder self_attention": config.decoder_layers * attention,
        "decoder cross_attention": config.decoder_layers * attention,
        "decoder feed_forward": config.decoder_layers * feed_forward,
        "decoder norm": config.decoder_layers * 3 * norm + final_norm,
    }


def count(params: Params) -> dict[str, int]:
    """Parameters of each part, counted in the arrays (or abstract arrays)."""
    counts: dict[str, int] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        part = _part([entry.key for entry in path if isinstance(entry, jax.tree_util.DictKey)])
        counts[part] = counts.get(part, 0) + math.prod(leaf.shape)
    return counts


def table(params: Params, config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> str:
    """Parameters by part, by formula and counted, as a training run prints first."""
    formula = count_by_formula(config, src_vocab_size, tgt_vocab_size)
    counted = count(params)
    rows = {part: (formula.get(part, 0), counted.get(part, 0)) for part in {**formula, **counted}}
    rows["total"] = sum(formula.values()), sum(counted.values())
    cells = [[part, *map("{:,}".format, both)] for part, both in rows.items() if any(both)]
    lines = [aligned(["part", "by formula", "counted"], cells)]
    for side, size in {"source": src_vocab_size, "target": tgt_vocab_size}.items():
        padded = table_rows(config, size)
        if padded > size:
            lines.append(
                f"{side} embedding: {size:,} types, {padded:,} rows (model.vocab_multiple)"
            )
    return "\n".join(lines)


def unstack_layers(params: Params) -> dict[str, Any]:
    """Parameters of a scanned model (`scan_layers`), whose layers are on axis 0, layer by layer."""
    unstacked = dict(params)
    for stack in STACKS:
        modules = dict(params[stack])
        if "layers" not in modules:
            raise ValueError(f"params['{stack}'] has no 'layers': is it unrolled already?")
        layers = modules.pop("layers")
        for index in range(jax.tree.leaves(layers)[0].shape[0]):
            modules[layer_name(index)] = jax.tree.map(lambda leaf, i=index: leaf[i], layers)
        unstacked[stack] = modules
    return unstacked


def _part(keys: list[str]) -> str:
    if keys[0] == "embedding":
        if keys[1] in ("softmax", SOFTMAX_BIAS):
            return "softmax"
        return "positions" if keys[1].endswith("_positions") else "embedding"
    if "norm" in keys:
        return f"{keys[0]} norm"
    sublayer = next(key for key in keys[1:] if not key.startswith("layers"))
    return f"{keys[0]} {sublayer}"
