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
from typing import Any, Literal, NamedTuple

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
# Marian settings for which this program supports only one value. transformers reads none of them.
# It doesn't read `static_position_embeddings` either: the arrays tell.
_REQUIRED = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
}
# No array of a checkpoint confirms this number.
_MOST_POSITIONS = 1 << 16
_TABLE_TOLERANCE = 1e-3  # of stored sinusoids, which may be float16
# A logit that leaves a type no share in float32, and that training in any dtype survives.
NO_SHARE = -100.0

State = Mapping[str, np.ndarray]
SHARED = "model.shared.weight"
TABLES = {stack: f"model.{stack}.embed_tokens.weight" for stack in STACKS}
SOFTMAX = "lm_head.weight"
BIAS = "final_logits_bias"
UNUSED = "<unused 0>"  # this program's padding in the folders that it writes
_POSITIONS = {stack: f"model.{stack}.embed_positions.weight" for stack in STACKS}
POSITIONS = _POSITIONS["decoder"]  # there, its first row holds the begin mark
_BEGIN = "begin"  # where `from_state` puts the vector that `_read_begin` returns


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
    """The model that a `config.json` describes. Raises ExportError for settings that have no form
    here, and KeyError, TypeError or ValueError for those that are missing or of another type."""
    if problems := _unsupported(config):
        raise ExportError(f"config.json: not supported here: {'; '.join(problems)}")
    d_model = int(config["d_model"])
    heads = config["encoder_attention_heads"]
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
        max_length=config["max_position_embeddings"],
        tie=_tie(config),
        activation=_ACTIVATIONS[config["activation_function"]],
        attention_bias=True,
        logits_bias=True,
        dropout=float(config.get("dropout", 0.1)),
        attention_dropout=float(config.get("attention_dropout", 0.0)),
        ffn_dropout=float(config.get("activation_dropout", 0.0)),
    )


def _unsupported(config: Mapping[str, Any]) -> list[str]:
    """Settings of a `config.json` that no model of this program has."""
    problems = [
        f"{name} = {config[name]!r}"
        for name, supported in _REQUIRED.items()
        if config.get(name, supported) != supported
    ]
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = (config[f"{stack}_{name}"] for stack in STACKS)
        if encoder != decoder:
            problems.append(f"encoder_{name} = {encoder} and decoder_{name} = {decoder}")

    if config["activation_function"] not in _ACTIVATIONS:
        problems.append(f"activation_function = {config['activation_function']!r}")

    d_model = int(config["d_model"])
    heads = config["encoder_attention_heads"]
    if d_model < 1 or heads < 1 or d_model % heads or d_model % 2:
        problems.append(f"d_model = {d_model} with {heads} heads")

    positions = config["max_position_embeddings"]
    if positions > _MOST_POSITIONS:
        problems.append(f"max_position_embeddings = {positions}")
    return problems


def _tie(config: Mapping[str, Any]) -> Literal["all", "target", "none"]:
    # Both sides may share a table that isn't the softmax's: untied, here.
    if not config.get("tie_word_embeddings", True):
        return "none"
    return "all" if is_shared(config) else "target"


def is_shared(config: Mapping[str, Any]) -> bool:
    """Whether source and target have one vocabulary."""
    return bool(config.get("share_encoder_decoder_embeddings", True))


def sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of source and target types."""
    src, tgt = config["vocab_size"], config.get("decoder_vocab_size")
    return src, src if is_shared(config) or tgt is None else tgt


def with_scale(
    weights: Weights, config: ModelConfig, checkpoint_config: Mapping[str, Any]
) -> tuple[Weights, ModelConfig]:
    """The same function in this program's form, which multiplies embeddings by sqrt(d_model).

    A model without that (`scale_embedding` in `checkpoint_config`) gets smaller tables for its
    inputs, untied from the softmax's.
    """
    if checkpoint_config.get("scale_embedding", False):  # its default in transformers
        return weights, config
    source, target, softmax = tables(weights, config)
    scale = np.float32(math.sqrt(config.d_model))
    untied = zip(_table_paths("none"), (source / scale, target / scale, softmax), strict=True)
    other_arrays = {
        path: array for path, array in weights.items() if path not in _table_paths(config.tie)
    }
    return other_arrays | dict(untied), dataclasses.replace(config, tie="none")


def _table_paths(tie: str) -> tuple[str, str, str]:
    """The paths of the tables of source, target and softmax; the same for tied ones."""
    return (
        f"embedding/{SOURCE_TABLE[tie]}",
        f"embedding/{TARGET_TABLE[tie]}",
        f"embedding/{SOFTMAX_TABLE[tie]}",
    )


def renumbered(
    weights: Weights, config: ModelConfig, src: Types, tgt: Types, start: int
) -> Weights:
    """The weights with rows in this program's order; padding has no share in the softmax. `start`
    is the folder's id of the type that the decoder begins with."""
    weights = dict(weights)
    begin = weights.pop(_BEGIN) / np.float32(math.sqrt(config.d_model))
    source, target, softmax = _table_paths(config.tie)
    bias = f"embedding/{SOFTMAX_BIAS}"
    ids = {source: src.ids, target: tgt.ids, softmax: tgt.ids, bias: tgt.ids}
    ordered = weights | {path: weights[path][np.array(rows)] for path, rows in ids.items()}

    if tgt.ids[PAD] in tgt.ids[PAD + 1 :]:
        # The folder's padding is the begin mark here, and none is left for padding. In a tied
        # table the row is also padding's input, which nothing reads.
        for path in (source, target, softmax):
            ordered[path][PAD] = 0
        ordered[bias][PAD] = NO_SHARE
    if tgt.ids[BOS] in tgt.ids[BOS + 1 :]:
        # The type that the decoder begins with has a use of its own, and its share there.
        ordered[bias][BOS] += NO_SHARE

    begin += weights[target][start]
    if not np.allclose(ordered[target][BOS], begin, atol=1e-5):
        ordered[target][BOS] = begin
    return ordered


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
        marks = [unused, *src[BOS : UNK + 1]]
        src_pieces, tgt_pieces = ([*marks, *side[UNK + 1 :]] for side in (src, tgt))
        pieces = dict.fromkeys([*src_pieces, *tgt_pieces])
        ids = {piece: number for number, piece in enumerate(pieces)}
        src_ids = tuple(ids[piece] for piece in src_pieces)
        tgt_ids = tuple(ids[piece] for piece in tgt_pieces)
        return cls((*ids, MARKS[PAD]), src_ids, tgt_ids)

    @property
    def start(self) -> int:
        return len(self.pieces) - 1

    def spread(
        self, rows: np.ndarray, ids: Sequence[int], filling: np.ndarray | float
    ) -> np.ndarray:
        """A table of all types: `rows` at `ids`, zeros at `start`, else `filling`."""
        table = np.zeros((len(self.pieces), *rows.shape[1:]), np.float32)
        table[:-1] = filling
        table[list(ids)] = rows
        return table


def logits_bias(weights: Weights, numbering: Numbering) -> Float[np.ndarray, " types"]:
    """The softmax's bias. The type that the decoder starts from has no share, nor have those of the
    source alone."""
    bias = weights.get(f"embedding/{SOFTMAX_BIAS}", np.zeros(len(numbering.tgt), np.float32))
    bias = numbering.spread(bias, numbering.tgt, NO_SHARE)
    bias[numbering.start] = NO_SHARE
    return bias


def to_state(weights: Weights, config: ModelConfig, numbering: Numbering) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, with tied tables once.

    CTranslate2's converter lets the decoder start from zeros, whatever the first token is. So
    padding's row is zeros, and the begin mark's is part of the decoder's first position.
    """
    weights = reorder_channels(weights, np.argsort(interleaved_from_halves(config.d_model)))
    source, target, softmax = tables(weights, config)
    src, tgt, spread = numbering.src, numbering.tgt, numbering.spread

    state: dict[str, np.ndarray] = {}
    if config.tie == "all":
        state[SHARED] = spread(softmax, tgt, 0.0)
    else:
        # A type of the target alone is unknown in a source.
        state[TABLES["encoder"]] = spread(source, src, source[UNK])
        state[TABLES["decoder"]] = spread(target, tgt, 0.0)
    if config.tie == "none":
        state[SOFTMAX] = spread(softmax, tgt, 0.0)

    state[BIAS] = logits_bias(weights, numbering)[None]  # [1, types]

    positions = sinusoids_in_halves(config.max_length, config.d_model)
    positions[0] += np.float32(math.sqrt(config.d_model)) * target[BOS]
    state[POSITIONS] = positions

    for array in _layer_arrays(config):
        if array.path.endswith("_bias") and array.path not in weights:
            state[array.name] = np.zeros(array.stored_shape)
        else:
            state[array.name] = weights[array.path].reshape(array.stored_shape[::-1]).T
    return {name: np.asarray(array, np.float32) for name, array in state.items()}


def from_state(
    state: State, config: ModelConfig, *, shared: bool, src_types: int, tgt_types: int
) -> Weights:
    """The inverse of `to_state`, for any floating-point dtype. `shared`: both sides may have one
    table; `config.tie` says whether they must. Raises ExportError for missing, unknown and
    misshapen arrays."""
    reader = _Reader(state)
    source, target, softmax = _read_tables(reader, config, shared, src_types, tgt_types)
    source_path, target_path, softmax_path = _table_paths(config.tie)
    weights: Weights = {
        source_path: source,
        target_path: target,
        softmax_path: softmax,
        f"embedding/{SOFTMAX_BIAS}": _read_bias(reader, tgt_types),
    }
    for array in _layer_arrays(config):
        matrix = reader.read(array.name, *array.stored_shape)
        weights[array.path] = np.ascontiguousarray(matrix.T).reshape(array.shape)
    # After the arrays, which have shown that d_model in config.json is true.
    weights[_BEGIN] = _read_begin(reader, config.d_model)
    reader.refuse_unread()
    return reorder_channels(weights, interleaved_from_halves(config.d_model))


class _Reader:
    """Takes the arrays of a checkpoint, and knows which of them nothing has asked for."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._unread = set(state)

    def __contains__(self, name: str) -> bool:
        return name in self._state

    def get(self, name: str) -> np.ndarray | None:
        """An array of any shape and dtype, if there is one."""
        self._unread.discard(name)
        return self._state.get(name)

    def read(self, name: str, *shape: int) -> np.ndarray:
        """An array as float32. Raises ExportError for missing, misshapen and infinite ones."""
        stored = self.get(name)
        if stored is None:
            raise ExportError(f"the checkpoint has no array '{name}'")
        if stored.shape != shape:
            raise ExportError(
                f"the array '{name}' is {_sizes(stored.shape)}, but config.json describes "
                f"{_sizes(shape)}"
            )
        array = np.asarray(stored, np.float32)
        if not np.isfinite(array).all():
            raise ExportError(f"the array '{name}' has values that are not finite")
        return array

    def check_tied(self, name: str, table: np.ndarray) -> None:
        """Raises ExportError if there is an array of this name that differs from the table."""
        stored = self.get(name)
        if stored is not None and not np.array_equal(stored, table):
            raise ExportError(f"the array '{name}' differs from the table that it is tied to")

    def refuse_unread(self) -> None:
        """Raises ExportError if nothing has asked for some of the arrays."""
        if self._unread:
            first_three = ", ".join(map(repr, sorted(self._unread)[:3]))
            further = len(self._unread) - 3
            raise ExportError(
                f"the checkpoint has arrays unknown to a Marian model: {first_three}"
                + (f" and {further} more" if further > 0 else "")
            )


def _sizes(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "1"


def _read_tables(
    reader: _Reader, config: ModelConfig, shared: bool, src_types: int, tgt_types: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tables [types, d_model] of source, target and softmax; tied ones are one array."""
    width = config.d_model
    if config.tie == "all":
        name = SHARED if SHARED in reader else TABLES["encoder"]
        source = target = reader.read(name, src_types, width)
        for tied_name in (SHARED, *TABLES.values()):
            reader.check_tied(tied_name, source)
    else:
        # Each side's own table if it has one, else the shared one.
        source, target = (
            reader.read(SHARED if shared and name not in reader else name, types, width)
            for name, types in zip(TABLES.values(), (src_types, tgt_types), strict=True)
        )
        if shared:
            reader.get(SHARED)  # known, even if both sides have their own

    softmax = reader.read(SOFTMAX, tgt_types, width) if config.tie == "none" else target
    reader.check_tied(SOFTMAX, softmax)
    return source, target, softmax


def _read_bias(reader: _Reader, types: int) -> Float[np.ndarray, " types"]:
    stored = reader.get(BIAS)
    if stored is None:
        return np.zeros(types, np.float32)
    leading_axes = [1] * (np.ndim(stored) - 1)
    return reader.read(BIAS, *leading_axes, types).reshape(-1)


def _read_begin(reader: _Reader, width: int) -> Float[np.ndarray, " width"]:
    """The vector that the decoder's first position adds to its sinusoid; zeros in most models.

    Raises ExportError if the positions of either side are no sinusoids.
    """
    begin = np.zeros(width, np.float32)
    for stack, name in _POSITIONS.items():
        table = reader.get(name)
        if table is None:
            continue
        sinusoids = sinusoids_in_halves(len(table) if table.ndim else 0, width)
        if table.shape == sinusoids.shape and stack == "decoder" and len(table):
            # Only the token that the decoder starts with has this position.
            offset = np.asarray(table[0], np.float32) - sinusoids[0]
            if np.isfinite(offset).all() and abs(offset).max() > _TABLE_TOLERANCE:
                begin = offset
                sinusoids[0] = table[0]
        if table.shape != sinusoids.shape or not (
            abs(table - sinusoids).max(initial=0.0) <= _TABLE_TOLERANCE
        ):
            raise ExportError(f"'{name}' holds positions that are not sinusoids")
    return begin


class _LayerArray(NamedTuple):
    """An array of a layer, here and in a checkpoint.

    As a matrix [in, out], ours is the transpose of theirs.
    """

    path: str  # here
    shape: tuple[int, ...]
    name: str  # in a checkpoint
    stored_shape: tuple[int, ...]


class _Linear(NamedTuple):
    """A projection of a layer, with a bias."""

    kernel: str
    bias: str
    into: tuple[int, ...]
    out: tuple[int, ...]
    name: str  # in a checkpoint


def _layer_arrays(config: ModelConfig) -> Iterator[_LayerArray]:
    """Every array of the layers."""
    layers = dict(zip(STACKS, (config.encoder_layers, config.decoder_layers), strict=True))
    width = (config.d_model,)
    for stack, count in layers.items():
        attentions = {"self_attention": "self_attn"}
        if stack == "decoder":
            attentions["cross_attention"] = "encoder_attn"
        linears = [*_linears(config, attentions)]
        norms = {"feed_forward_residual/norm": "final_layer_norm"}
        for path, name in attentions.items():
            norms[f"{path}_residual/norm"] = f"{name}_layer_norm"

        for number in range(count):
            layer = f"{stack}/{layer_name(number)}"
            prefix = f"model.{stack}.layers.{number}"
            for kernel, bias, into, out, name in linears:
                matrix = (math.prod(out), math.prod(into))
                kernel_shape = (*into, *out)
                yield _LayerArray(
                    f"{layer}/{kernel}", kernel_shape, f"{prefix}.{name}.weight", matrix
                )
                yield _LayerArray(f"{layer}/{bias}", out, f"{prefix}.{name}.bias", matrix[:1])
            for norm, name in norms.items():
                yield _LayerArray(f"{layer}/{norm}/scale", width, f"{prefix}.{name}.weight", width)
                yield _LayerArray(f"{layer}/{norm}/bias", width, f"{prefix}.{name}.bias", width)


def _linears(config: ModelConfig, attentions: Mapping[str, str]) -> Iterator[_Linear]:
    """A layer's projections; `attentions` has its attentions' names, here and in a checkpoint."""
    width = (config.d_model,)
    heads = (config.num_heads, config.d_model // config.num_heads)
    for path, name in attentions.items():
        for role in ("query", "key", "value"):
            projection = f"{name}.{role[0]}_proj"
            yield _Linear(f"{path}/{role}", f"{path}/{role}_bias", width, heads, projection)
        yield _Linear(f"{path}/out", f"{path}/out_bias", heads, width, f"{name}.out_proj")
    inner = (config.d_ff,)
    yield _Linear("feed_forward/w_in", "feed_forward/b_in", width, inner, "fc1")
    yield _Linear("feed_forward/w_out", "feed_forward/b_out", inner, width, "fc2")


def sinusoids_in_halves(length: int, d_model: int) -> Float[np.ndarray, "length d_model"]:
    """The position encodings of these models: sines, then cosines, of the paper's angles."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
