"""A model as Marian's own arrays and settings, and back: what its `model.npz` and `model.bin` hold.

Marian's decoder starts from zeros instead of a begin mark. So the begin mark's embedding is
subtracted from every row of the target's table, and the first layer adds it again through its
biases: to what queries, keys and values are made of, and to the residual. The outputs are the same,
since a tied softmax's logits all change by one number. If the source has the same table, so does
the encoder's first layer.

Kernels are [in, out], with the heads side by side. Position encodings are tensor2tensor's, with all
sines before all cosines. Source: Marian's transformer.h and node_initializers.cpp.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from flaxformer_mt.config import ModelConfig
from flaxformer_mt.data.vocabulary import BOS, PAD
from flaxformer_mt.interop import ExportError
from flaxformer_mt.interop.marian import NO_SHARE
from flaxformer_mt.interop.weights import (
    Weights,
    interleaved_from_halves,
    reorder_channels,
    tables,
    usual_heads,
)
from flaxformer_mt.model.embedding import SOFTMAX_BIAS, SOFTMAX_TABLE, SOURCE_TABLE, TARGET_TABLE
from flaxformer_mt.model.parameters import STACKS, layer_name

Arrays = dict[str, np.ndarray]
Settings = Mapping[str, Any]
Rows = Sequence[int | None]  # of a table, one for each type

# Marian's, which no setting changes (expression_operators.h).
NORM_EPSILON = 1e-9
SHARED = "Wemb"
TABLES = {"encoder": "encoder_Wemb", "decoder": "decoder_Wemb"}
SOFTMAX = "decoder_ff_logit_out_Wt"
BIAS = "decoder_ff_logit_out_b"
_ACTIVATIONS: dict[str, Literal["relu", "silu"]] = {"relu": "relu", "swish": "silu"}
_ATTENTIONS = {"self_attention": "self", "cross_attention": "context"}
_ROLES = {"query": "q", "key": "k", "value": "v", "out": "o"}
# Settings that say what the arrays mean, with the values that have a form here. Marian writes all.
_FIXED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-preprocess": ("", "d"),
    "transformer-postprocess": ("dan", "an"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": (2,),
    "transformer-no-projection": (False,),
    # Without an effect: the program asks for it by another name.
    "transformer-train-position-embeddings": (False, True),
    "transformer-tied-layers": ([],),
    "transformer-pool": (False,),
    "right-left": (False,),  # outputs are written from their end
    "ulr": (False,),
    "lemma-dim-emb": (0,),
}
# The same, of releases since 1.10, which say them only if they know them.
_FIXED_SINCE: dict[str, tuple[Any, ...]] = {
    "transformer-alibi-shift": (False,),
    "transformer-alibi-trainable": (False,),
    "transformer-attention-mask": ("default",),
    "transformer-decoder-dim-ffn": (0,),
    "transformer-decoder-ffn-depth": (0,),
    "transformer-disable-position-embeddings": (False,),
    "transformer-no-affine": (False,),
    "transformer-no-bias": (False,),
    "transformer-rnn-projection": (False,),
    "factors-dim-emb": (0,),
}
# Settings of other kinds of models, which Marian reads all the same.
_OF_OTHER_MODELS: dict[str, Any] = {
    "dim-rnn": 1024,
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "enc-type": "bidirectional",
    "dec-cell": "gru",
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "skip": False,
    "layer-normalization": False,
    "input-types": [],
    "special-vocab": [],
    "transformer-dim-aan": 2048,
    "transformer-aan-depth": 2,
    "transformer-aan-activation": "swish",
    "transformer-aan-nogate": False,
    "transformer-guided-alignment-layer": "last",
    "ulr-trainable-transformation": False,
    "ulr-dim-emb": 0,
    "bert-train-type-embeddings": True,
    "bert-type-vocab-size": 2,
    "version": "v1.9.0",
}


def check_form(config: ModelConfig) -> None:
    """Raises ExportError for a model that Marian can't represent, with the reasons."""
    problems = []
    if config.norm != "post":
        problems.append(
            "while translating, its pre-LN decoder normalises only the queries of self-attention, "
            "not the keys and values, but model.norm = 'pre'"
        )
    if config.positions == "learned":
        problems.append(
            "its transformers have sinusoids, whatever its settings say, but model.positions = "
            "'learned'"
        )
    elif config.positions != "tensor2tensor":
        problems.append(
            "its sinusoids are tensor2tensor's, but model.positions = 'sinusoidal'; continue the "
            "training for some hundred steps with: train --init-from RUN --workdir NEW "
            "--config.model.positions=tensor2tensor"
        )
    if problems:
        raise ExportError(f"Marian cannot hold this model: {'; '.join(problems)}")


def model_settings(config: ModelConfig, src_types: int, tgt_types: int) -> dict[str, Any]:
    """What `special:model.yml` says of a model with these numbers of types."""
    activations = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    return {
        **_OF_OTHER_MODELS,
        **{name: values[0] for name, values in _FIXED.items()},
        "dim-vocabs": [src_types, tgt_types],
        "dim-emb": config.d_model,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "transformer-heads": config.num_heads,
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-activation": activations[config.activation],
        "tied-embeddings-all": config.tie == "all",
        "tied-embeddings": config.tie == "target",
        "tied-embeddings-src": False,
        "output-omit-bias": False,
    }


def model_config(settings: Settings, *, max_length: int) -> ModelConfig:
    """The model that such settings describe. Raises ExportError for those without a form here, and
    KeyError, TypeError or ValueError for missing ones and those of another type."""
    if problems := list(_unsupported(settings)):
        raise ExportError(f"special:model.yml: not supported here: {'; '.join(problems)}")
    d_model, heads = int(settings["dim-emb"]), int(settings["transformer-heads"])
    tie: Literal["all", "target", "none"] = "none"
    sources_tied, softmax_tied = settings.get("tied-embeddings-src"), settings["tied-embeddings"]
    if settings["tied-embeddings-all"] or (sources_tied and softmax_tied):
        tie = "all"
    elif softmax_tied:
        tie = "target"
    return ModelConfig(
        encoder_layers=int(settings["enc-depth"]),
        decoder_layers=int(settings["dec-depth"]),
        d_model=d_model,
        d_ff=int(settings["transformer-dim-ffn"]),
        num_heads=heads,
        d_k=d_model // heads,
        d_v=d_model // heads,
        norm="post",
        norm_epsilon=NORM_EPSILON,
        positions="tensor2tensor",
        max_length=max_length,
        tie=tie,
        activation=_ACTIVATIONS[settings["transformer-ffn-activation"]],
        attention_bias=True,
        logits_bias=True,
    )


def _unsupported(settings: Settings) -> Iterator[str]:
    """Settings that no model of this program has."""
    for name, values in (_FIXED | _FIXED_SINCE).items():
        if name in settings and settings[name] not in values:
            yield f"{name} = {settings[name]!r}"
    if settings["transformer-ffn-activation"] not in _ACTIVATIONS:
        yield f"transformer-ffn-activation = {settings['transformer-ffn-activation']!r}"
    d_model, heads = int(settings["dim-emb"]), int(settings["transformer-heads"])
    if d_model < 1 or heads < 1 or d_model % heads or d_model % 2:
        yield f"dim-emb = {d_model} with {heads} heads"
    if len(settings["dim-vocabs"]) != 2:
        yield f"dim-vocabs = {settings['dim-vocabs']!r}"


def to_arrays(weights: Weights, config: ModelConfig) -> Arrays:
    """Marian's arrays, float32. Raises ExportError for heads wider than d_model / num_heads."""
    weights = usual_heads(weights, config, "Marian")
    weights = reorder_channels(weights, np.argsort(interleaved_from_halves(config.d_model)))
    source, target, softmax = tables(weights, config)
    begin = target[BOS].copy()
    arrays: Arrays = {}
    if config.tie == "all":
        arrays[SHARED] = target - begin
    else:
        arrays[TABLES["encoder"]] = source
        arrays[TABLES["decoder"]] = target - begin
    if config.tie == "none":
        arrays[SOFTMAX] = softmax

    bias = weights.get(f"embedding/{SOFTMAX_BIAS}", np.zeros(len(softmax))).copy()
    bias[[PAD, BOS]] += NO_SHARE  # Marian may generate any type but the unknown one
    arrays[BIAS] = bias
    for array in _layer_arrays(config):
        if array.path in weights:
            arrays[array.name] = weights[array.path].reshape(array.shape)
        else:
            arrays[array.name] = np.zeros(array.shape)
    _add_begin(arrays, begin * np.float32(math.sqrt(config.d_model)), config)
    return {
        name: np.ascontiguousarray(np.atleast_2d(array), np.float32)
        for name, array in arrays.items()
    }


def _add_begin(arrays: Arrays, begin: np.ndarray, config: ModelConfig) -> None:
    """Lets the first layers add what the tables no longer have."""
    for stack in STACKS if config.tie == "all" else ("decoder",):
        prefix = f"{stack}_l1_self"
        for role in ("q", "k", "v"):
            arrays[f"{prefix}_b{role}"] = (
                arrays[f"{prefix}_b{role}"] + begin @ arrays[f"{prefix}_W{role}"]
            )
        arrays[f"{prefix}_bo"] = arrays[f"{prefix}_bo"] + begin


def with_more_types(arrays: Arrays, multiple: int) -> Arrays:
    """With tables of `multiple` rows or a multiple of it; the new types have no share in the
    softmax."""
    padded = dict(arrays)
    for name in (SHARED, *TABLES.values(), SOFTMAX):
        if name in arrays:
            missing = -len(arrays[name]) % multiple
            padded[name] = np.pad(arrays[name], [(0, missing), (0, 0)])
    missing = -arrays[BIAS].size % multiple
    padded[BIAS] = np.pad(arrays[BIAS], [(0, 0), (0, missing)], constant_values=NO_SHARE)
    return padded


def from_arrays(
    arrays: Mapping[str, np.ndarray], config: ModelConfig, src_rows: Rows, tgt_rows: Rows
) -> Weights:
    """The weights of a model whose types have these rows of Marian's tables; None: a type of ours
    alone. Raises ExportError for missing, unknown and misshapen arrays."""
    reader = _Reader(arrays)
    width = config.d_model
    if config.tie == "all":
        source = target = softmax = reader.read(SHARED, None, width)
    else:
        shared = SHARED in arrays  # tied-embeddings-src
        source, target = (
            reader.read(SHARED if shared else TABLES[stack], None, width) for stack in STACKS
        )
        softmax = target
    if config.tie == "none":
        softmax = _softmax(reader, arrays, width)
    bias = np.zeros((1, len(softmax)), np.float32)
    if BIAS in arrays:
        bias = reader.read(BIAS, 1, len(softmax))
    paths = (SOURCE_TABLE, TARGET_TABLE, SOFTMAX_TABLE)
    rows = zip(paths, (source, target, softmax), (src_rows, tgt_rows, tgt_rows), strict=True)
    weights: Weights = {
        f"embedding/{names[config.tie]}": _picked(table, numbers) for names, table, numbers in rows
    }
    weights[f"embedding/{SOFTMAX_BIAS}"] = _picked(bias[0], tgt_rows, NO_SHARE)
    for array in _layer_arrays(config):
        stored = reader.read(array.name, *np.atleast_2d(np.empty(array.shape)).shape)
        weights[array.path] = stored.reshape(array.ours)
    reader.refuse_unread()
    return reorder_channels(weights, interleaved_from_halves(width))


def _softmax(reader: "_Reader", arrays: Mapping[str, np.ndarray], width: int) -> np.ndarray:
    untransposed = SOFTMAX.removesuffix("t")  # in older models
    if SOFTMAX not in arrays and untransposed in arrays:
        return reader.read(untransposed, width, None).T
    return reader.read(SOFTMAX, None, width)


def _picked(table: np.ndarray, rows: Rows, filling: float = 0.0) -> np.ndarray:
    needed = 1 + max((row for row in rows if row is not None), default=-1)
    if needed > len(table):
        raise ExportError(
            f"a table of embeddings has {len(table)} rows, but its vocabulary {needed} types"
        )
    picked = np.full((len(rows), *table.shape[1:]), filling, np.float32)
    for number, row in enumerate(rows):
        if row is not None:
            picked[number] = table[row]
    return picked


class _Reader:
    """Takes arrays, and knows which of them nothing has asked for."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays, self._unread = arrays, set(arrays)

    def read(self, name: str, *shape: int | None) -> np.ndarray:
        """An array as float32, of any size where the shape has None. Raises ExportError."""
        self._unread.discard(name)
        stored = self._arrays.get(name)
        if stored is None:
            raise ExportError(f"the model has no array '{name}'")
        fits = len(stored.shape) == len(shape) and all(
            size in (None, stored_size)
            for stored_size, size in zip(stored.shape, shape, strict=True)
        )
        if not fits:
            expected_shape = " x ".join("any" if size is None else str(size) for size in shape)
            stored_shape = " x ".join(map(str, stored.shape))
            raise ExportError(
                f"the array '{name}' is {stored_shape}, but special:model.yml describes "
                f"{expected_shape}"
            )
        array = np.asarray(stored, np.float32)
        if not np.isfinite(array).all():
            raise ExportError(f"the array '{name}' has values that are not finite")
        return array

    def refuse_unread(self) -> None:
        if self._unread:
            names = ", ".join(map(repr, sorted(self._unread)[:3]))
            raise ExportError(f"has arrays that such a model doesn't have: {names}")


class _LayerArray(NamedTuple):
    path: str
    ours: tuple[int, ...]
    name: str
    shape: tuple[int, ...]


def _layer_arrays(config: ModelConfig) -> Iterator[_LayerArray]:
    """Every array of the layers, for heads of the usual width; shapes here and in Marian."""
    width, inner = config.d_model, config.d_ff
    heads = (config.num_heads, width // config.num_heads)
    for stack, count in zip(STACKS, (config.encoder_layers, config.decoder_layers), strict=True):
        attentions = ["self_attention"] + ["cross_attention"] * (stack == "decoder")
        for number in range(count):
            layer, prefix = f"{stack}/{layer_name(number)}", f"{stack}_l{number + 1}"
            norms = {}
            for attention in attentions:
                path, name = f"{layer}/{attention}", f"{prefix}_{_ATTENTIONS[attention]}"
                for role, letter in _ROLES.items():
                    kernel = (*heads, width) if role == "out" else (width, *heads)
                    bias = (width,) if role == "out" else heads
                    yield _LayerArray(f"{path}/{role}", kernel, f"{name}_W{letter}", (width, width))
                    yield _LayerArray(f"{path}/{role}_bias", bias, f"{name}_b{letter}", (width,))
                norms[f"{path}_residual/norm"] = f"{name}_Wo"
            path, name = f"{layer}/feed_forward", f"{prefix}_ffn"
            for suffix, digit, sizes in (("in", 1, (width, inner)), ("out", 2, (inner, width))):
                yield _LayerArray(f"{path}/w_{suffix}", sizes, f"{name}_W{digit}", sizes)
                yield _LayerArray(f"{path}/b_{suffix}", sizes[1:], f"{name}_b{digit}", sizes[1:])
            norms[f"{path}_residual/norm"] = f"{name}_ffn"
            for path, name in norms.items():
                for part in ("scale", "bias"):
                    yield _LayerArray(f"{path}/{part}", (width,), f"{name}_ln_{part}", (width,))
