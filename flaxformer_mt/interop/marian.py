"""A Marian checkpoint's settings, ids and arrays in this program's terms.

Types are renumbered: here padding, begin, end and unknown are 0 to 3 in every vocabulary. Marian's
decoder begins with padding instead of a begin mark: that type becomes the begin mark, and padding
here is a type without a share in the softmax. Where it begins with another type in use, such as the
end mark, the begin mark is a copy without a share.

Their kernels are [out, in]; their sinusoids have all sines before all cosines, so channels are in
another order than here; every projection has a bias.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from flaxformer_mt.config import ModelConfig
from flaxformer_mt.data.type_table import MARKS, TypeTable
from flaxformer_mt.data.vocabulary import BOS, PAD, UNK
from flaxformer_mt.interop import ExportError
from flaxformer_mt.interop.weights import (
    Weights,
    interleaved_from_halves,
    reorder_channels,
    tables,
)
from flaxformer_mt.model.embedding import SOFTMAX_BIAS, SOFTMAX_TABLE, SOURCE_TABLE, TARGET_TABLE
from flaxformer_mt.model.parameters import STACKS, layer_name

# torch.nn.LayerNorm's, which no setting of theirs changes.
NORM_EPSILON = 1e-5
_ACTIVATIONS: dict[str, Literal["relu", "silu"]]
_ACTIVATIONS = {"relu": "relu", "silu": "silu", "swish": "silu"}
# Marian settings for which this program supports only one value. transformers reads none of them,
# nor `static_position_embeddings`: the arrays tell.
_REQUIRED = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
}
# No array of a checkpoint confirms this number.
_MOST_POSITIONS = 1 << 16
_TABLE_TOLERANCE = 1e-3  # of stored sinusoids, which may be float16
# A logit that leaves nothing of a type's share in float32, and that training in any dtype survives.
NO_SHARE = -100.0

State = Mapping[str, np.ndarray]
SHARED = "model.shared.weight"
TABLES = {stack: f"model.{stack}.embed_tokens.weight" for stack in STACKS}
SOFTMAX = "lm_head.weight"
BIAS = "final_logits_bias"
UNUSED = "<unused 0>"  # this program's padding in the folders that it writes
_POSITIONS = {stack: f"model.{stack}.embed_positions.weight" for stack in STACKS}
POSITIONS = _POSITIONS["decoder"]  # there, its first row holds the begin mark
_BEGIN = "begin"  # what the decoder's first position adds to its sinusoid, in `from_state`


@dataclasses.dataclass(frozen=True)
class Types:
    """One side's types: their pieces in this program's order, and their ids in the folder."""

    table: TypeTable
    ids: tuple[int, ...]

    @property
    def never_generated(self) -> list[int]:
        """Ids of marks that no output holds, in the folder."""
        shared = self.ids[BOS] in self.ids[BOS + 1 :]
        return sorted({self.ids[mark] for mark in ((PAD, UNK) if shared else (PAD, BOS, UNK))})


def model_config(config: Mapping[str, Any]) -> ModelConfig:
    """The model that a `config.json` describes. Raises ExportError for what has no form here, and
    KeyError, TypeError or ValueError for settings that are missing or of another type."""
    problems = [
        f"{name} = {config[name]!r}"
        for name, value in _REQUIRED.items()
        if config.get(name, value) != value
    ]
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = (config[f"{side}_{name}"] for side in STACKS)
        if encoder != decoder:
            problems.append(f"encoder_{name} = {encoder} and decoder_{name} = {decoder}")
    if config["activation_function"] not in _ACTIVATIONS:
        problems.append(f"activation_function = {config['activation_function']!r}")
    d_model = int(config["d_model"])
    heads = config["encoder_attention_heads"]
    if d_model < 1 or heads < 1 or d_model % heads or d_model % 2:
        problems.append(f"d_model = {d_model} with {heads} heads")
    if (positions := config["max_position_embeddings"]) > _MOST_POSITIONS:
        problems.append(f"max_position_embeddings = {positions}")
    # Both sides may share a table that isn't the softmax's: untied, here.
    tie: Literal["all", "target", "none"] = "all" if is_shared(config) else "target"
    if not config.get("tie_word_embeddings", True):
        tie = "none"
    if problems:
        raise ExportError(f"config.json: not supported here: {'; '.join(problems)}")
    return ModelConfig(
        encoder_layers=config["encoder_layers"],
        decoder_layers=config["decoder_layers"],
        d_model=d_model,
        d_ff=config["encoder_ffn_dim"],
        num_heads=heads,
        d_k=d_model // heads,
        d_v=d_model // heads,
        norm="post",
        norm_epsilon=NORM_EPSILON,
        positions="sinusoidal",
        max_length=positions,
        tie=tie,
        activation=_ACTIVATIONS[config["activation_function"]],
        attention_bias=True,
        logits_bias=True,
        dropout=float(config.get("dropout", 0.1)),
        attention_dropout=float(config.get("attention_dropout", 0.0)),
        ffn_dropout=float(config.get("activation_dropout", 0.0)),
    )


def is_shared(config: Mapping[str, Any]) -> bool:
    return bool(config.get("share_encoder_decoder_embeddings", True))


def sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    src, tgt = config["vocab_size"], config.get("decoder_vocab_size")
    return src, src if is_shared(config) or tgt is None else tgt


def with_scale(
    weights: Weights, config: ModelConfig, given: Mapping[str, Any]
) -> tuple[Weights, ModelConfig]:
    """The same function in this program's form, which multiplies embeddings by sqrt(d_model).

    A model without that (`scale_embedding`) gets smaller tables for its inputs, untied from the
    softmax's.
    """
    if given.get("scale_embedding", False):  # its default in transformers
        return weights, config
    source, target, softmax = tables(weights, config)
    scale = np.float32(math.sqrt(config.d_model))
    names = (each["none"] for each in (SOURCE_TABLE, TARGET_TABLE, SOFTMAX_TABLE))
    untied = zip(names, (source / scale, target / scale, softmax), strict=True)
    former = {each[config.tie] for each in (SOURCE_TABLE, TARGET_TABLE, SOFTMAX_TABLE)}
    rest = {
        path: array
        for path, array in weights.items()
        if path.removeprefix("embedding/") not in former
    }
    return (
        rest | {f"embedding/{name}": table for name, table in untied},
        dataclasses.replace(config, tie="none"),
    )


def renumbered(
    weights: Weights, config: ModelConfig, src: Types, tgt: Types, start: int
) -> Weights:
    """The weights with rows in this program's order; padding has no share in the softmax. `start`
    is the folder's id of the type that the decoder begins with."""
    weights = dict(weights)
    begin = weights.pop(_BEGIN) / np.float32(math.sqrt(config.d_model))
    source, target, softmax = (
        f"embedding/{each[config.tie]}" for each in (SOURCE_TABLE, TARGET_TABLE, SOFTMAX_TABLE)
    )
    bias = f"embedding/{SOFTMAX_BIAS}"
    ids = {source: src.ids, target: tgt.ids, softmax: tgt.ids, bias: tgt.ids}
    found = weights | {path: weights[path][np.array(rows)] for path, rows in ids.items()}
    if tgt.ids[PAD] in tgt.ids[PAD + 1 :]:
        # The folder's padding is the begin mark here, and none is left for padding. In a tied
        # table the row is also padding's input, which nothing reads.
        for path in (source, target, softmax):
            found[path][PAD] = 0
        found[bias][PAD] = NO_SHARE
    if tgt.ids[BOS] in tgt.ids[BOS + 1 :]:
        # The type that the decoder begins with has a use of its own, where its share is.
        found[bias][BOS] += NO_SHARE
    begin += weights[target][start]
    if not np.allclose(found[target][BOS], begin, atol=1e-5):
        found[target][BOS] = begin
    return found


@dataclasses.dataclass(frozen=True)
class Numbering:
    """A vocabulary of both sides' types, as CTranslate2's converter of these models needs it: one
    for both, with padding last, from which the decoder starts."""

    pieces: tuple[str, ...]
    src: tuple[int, ...]  # ids of this program's source types
    tgt: tuple[int, ...]

    @classmethod
    def of(cls, src: Sequence[str], tgt: Sequence[str]) -> "Numbering":
        """Of the pieces of both sides, which may be the same."""
        # This program's padding stays a type: it has a share in the softmax.
        unused = UNUSED
        while unused in src or unused in tgt:
            unused += " "
        marks = dict(enumerate([unused, *src[BOS : UNK + 1]]))
        sides = [[*marks.values(), *pieces[UNK + 1 :]] for pieces in (src, tgt)]
        ids = {piece: number for number, piece in enumerate(dict.fromkeys(sides[0] + sides[1]))}
        src_ids, tgt_ids = (tuple(ids[piece] for piece in side) for side in sides)
        return cls((*ids, MARKS[PAD]), src_ids, tgt_ids)

    @property
    def start(self) -> int:
        return len(self.pieces) - 1


def to_state(weights: Weights, config: ModelConfig, numbering: Numbering) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, with tied tables once.

    CTranslate2's converter lets the decoder start from zeros, whatever the first token is. So
    padding's row is zeros, and the begin mark's is part of the decoder's first position.
    """
    weights = reorder_channels(weights, np.argsort(interleaved_from_halves(config.d_model)))
    source, target, softmax = tables(weights, config)
    size, width = len(numbering.pieces), config.d_model
    src, tgt = list(numbering.src), list(numbering.tgt)

    def spread(rows: np.ndarray, ids: list[int], other: np.ndarray | float) -> np.ndarray:
        table = np.zeros((size, *rows.shape[1:]), np.float32)
        table[:-1] = other
        table[ids] = rows
        return table

    state: dict[str, np.ndarray] = {}
    if config.tie == "all":
        state[SHARED] = spread(softmax, tgt, 0.0)
    else:
        # A type of the target alone is unknown in a source.
        state[TABLES["encoder"]] = spread(source, src, source[UNK])
        state[TABLES["decoder"]] = spread(target, tgt, 0.0)
    if config.tie == "none":
        state[SOFTMAX] = spread(softmax, tgt, 0.0)
    bias = spread(weights.get(f"embedding/{SOFTMAX_BIAS}", np.zeros(len(softmax))), tgt, NO_SHARE)
    bias[numbering.start] = NO_SHARE
    state[BIAS] = bias[None]
    positions = sinusoids_in_halves(config.max_length, width)
    positions[0] += np.float32(math.sqrt(width)) * target[BOS]
    state[POSITIONS] = positions
    for ours, _, theirs, shape in _arrays(config):
        if ours.endswith("_bias") and ours not in weights:
            state[theirs] = np.zeros(shape)
        else:
            state[theirs] = weights[ours].reshape(shape[::-1]).T
    return {name: np.asarray(array, np.float32) for name, array in state.items()}


def from_state(
    state: State, config: ModelConfig, *, shared: bool, src_types: int, tgt_types: int
) -> Weights:
    """The inverse of `to_state`, for any floating-point dtype. `shared`: both sides may have one
    table; `config.tie` says whether they must. Raises ExportError for missing, unknown and
    misshapen arrays."""
    unknown = set(state)

    def read(name: str, *shape: int) -> np.ndarray:
        unknown.discard(name)
        if name not in state:
            raise ExportError(f"the checkpoint has no array '{name}'")
        if (found := state[name].shape) != shape:
            there, wanted = (" x ".join(map(str, sizes)) or "1" for sizes in (found, shape))
            raise ExportError(f"the array '{name}' is {there}, but config.json describes {wanted}")
        array = np.asarray(state[name], np.float32)
        if not np.isfinite(array).all():
            raise ExportError(f"the array '{name}' has values that are not finite")
        return array

    def tied(name: str, table: np.ndarray) -> None:
        unknown.discard(name)
        if name in state and not np.array_equal(state[name], table):
            raise ExportError(f"the array '{name}' differs from the table that it is tied to")

    width = config.d_model
    if config.tie == "all":
        source = target = read(SHARED if SHARED in state else TABLES["encoder"], src_types, width)
        for name in (SHARED, *TABLES.values()):
            tied(name, source)
    else:
        # Each side's own table if it is there, else the shared one.
        source, target = (
            read(SHARED if shared and name not in state else name, types, width)
            for name, types in zip(TABLES.values(), (src_types, tgt_types), strict=True)
        )
        if shared:
            unknown.discard(SHARED)
    softmax = read(SOFTMAX, tgt_types, width) if config.tie == "none" else target
    tied(SOFTMAX, softmax)
    bias = np.zeros(tgt_types, np.float32)
    if BIAS in state:
        bias = read(BIAS, *[1] * (np.ndim(state[BIAS]) - 1), tgt_types).reshape(-1)
    weights: Weights = {
        f"embedding/{SOURCE_TABLE[config.tie]}": source,
        f"embedding/{TARGET_TABLE[config.tie]}": target,
        f"embedding/{SOFTMAX_TABLE[config.tie]}": softmax,
        f"embedding/{SOFTMAX_BIAS}": bias,
    }
    for ours, shape, theirs, there in _arrays(config):
        weights[ours] = np.ascontiguousarray(read(theirs, *there).T).reshape(shape)
    # After the arrays, which have shown that d_model in config.json is true.
    weights[_BEGIN] = np.zeros(width, np.float32)
    for stack, name in _POSITIONS.items():
        unknown.discard(name)
        if (table := state.get(name)) is None:
            continue
        sinusoids = sinusoids_in_halves(len(table) if table.ndim else 0, width)
        if table.shape == sinusoids.shape and stack == "decoder" and len(table):
            # Only the token that the decoder starts with stands there.
            offset = np.asarray(table[0], np.float32) - sinusoids[0]
            if np.isfinite(offset).all() and abs(offset).max() > _TABLE_TOLERANCE:
                weights[_BEGIN] = offset
                sinusoids[0] = table[0]
        if table.shape != sinusoids.shape or not (
            abs(table - sinusoids).max(initial=0.0) <= _TABLE_TOLERANCE
        ):
            raise ExportError(f"'{name}' holds positions that are not sinusoids")
    if unknown:
        shown = ", ".join(map(repr, sorted(unknown)[:3]))
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise ExportError(f"the checkpoint has arrays unknown to a Marian model: {shown}{more}")
    return reorder_channels(weights, interleaved_from_halves(width))


def _arrays(
    config: ModelConfig,
) -> Iterator[tuple[str, tuple[int, ...], str, tuple[int, ...]]]:
    """Our path and shape, their name and shape, of every array of the layers. Theirs is ours as a
    matrix [in, out], transposed."""
    width, d_ff, heads = config.d_model, config.d_ff, config.num_heads
    split = (heads, width // heads)
    for stack, count in zip(STACKS, (config.encoder_layers, config.decoder_layers), strict=True):
        attentions = [("self_attention", "self_attn")]
        if stack == "decoder":
            attentions.append(("cross_attention", "encoder_attn"))
        linears: list[tuple[str, str, tuple[int, ...], tuple[int, ...], str]] = []
        norms = [("feed_forward_residual/norm", "final_layer_norm")]
        for ours, theirs in attentions:
            for name in ("query", "key", "value"):
                there = f"{theirs}.{name[0]}_proj"
                linears.append((f"{ours}/{name}", f"{ours}/{name}_bias", (width,), split, there))
            linears.append(
                (f"{ours}/out", f"{ours}/out_bias", split, (width,), f"{theirs}.out_proj")
            )
            norms.append((f"{ours}_residual/norm", f"{theirs}_layer_norm"))
        linears.append(("feed_forward/w_in", "feed_forward/b_in", (width,), (d_ff,), "fc1"))
        linears.append(("feed_forward/w_out", "feed_forward/b_out", (d_ff,), (width,), "fc2"))
        for number in range(count):
            here = f"{stack}/{layer_name(number)}"
            prefix = f"model.{stack}.layers.{number}"
            for kernel, bias, into, out, name in linears:
                matrix = (math.prod(out), math.prod(into))
                yield f"{here}/{kernel}", (*into, *out), f"{prefix}.{name}.weight", matrix
                yield f"{here}/{bias}", out, f"{prefix}.{name}.bias", matrix[:1]
            for norm, name in norms:
                yield f"{here}/{norm}/scale", (width,), f"{prefix}.{name}.weight", (width,)
                yield f"{here}/{norm}/bias", (width,), f"{prefix}.{name}.bias", (width,)


def sinusoids_in_halves(length: int, d_model: int) -> Float[np.ndarray, "length d_model"]:
    """The position encodings of these models: sines, then cosines, of the paper's angles."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
