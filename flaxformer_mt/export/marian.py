"""What a Marian checkpoint's settings, ids and arrays are in this program's terms.

Their models differ from the paper's in settings that `ModelConfig` has. Their types are renumbered:
here padding, begin, end and unknown are 0 to 3 in every vocabulary. Marian has no begin mark, its
decoder begins with padding: that type becomes the begin mark, and what is padding here is a type
without a share in the softmax.

Their kernels are [out, in]; their sinusoids have all sines before all cosines, so that channels
stand in another order than here; every projection has a bias.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.data.type_table import TypeTable
from flaxformer_mt.data.vocabulary import PAD
from flaxformer_mt.export import ExportError
from flaxformer_mt.export.weights import (
    PROJECTIONS,
    Weights,
    interleaved_from_halves,
    linear,
    reorder_channels,
    tables,
)
from flaxformer_mt.model.embedding import SOFTMAX_BIAS, SOFTMAX_TABLE, SOURCE_TABLE, TARGET_TABLE
from flaxformer_mt.model.parameters import STACKS, layer_name

# torch.nn.LayerNorm's, which no setting of theirs changes.
NORM_EPSILON = 1e-5
_ACTIVATIONS: dict[str, Literal["relu", "silu"]] = {
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
# Settings of theirs of which this program has the form of one value alone.
_REQUIRED = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "scale_embedding": True,
}
# No array of a checkpoint has to agree with what it says of these.
_MOST_POSITIONS = 1 << 16
# A logit that leaves nothing of a type's share in float32, and that training in any dtype survives.
NO_SHARE = -100.0

State = Mapping[str, np.ndarray]
SHARED = "model.shared.weight"
TABLES = {
    "encoder": "model.encoder.embed_tokens.weight",
    "decoder": "model.decoder.embed_tokens.weight",
}
POSITIONS = {stack: f"model.{stack}.embed_positions.weight" for stack in TABLES}
SOFTMAX = "lm_head.weight"
BIAS = "final_logits_bias"


@dataclasses.dataclass(frozen=True)
class Types:
    """The types of one side: their pieces in this program's order, and their ids in the folder."""

    table: TypeTable
    ids: tuple[int, ...]


def model_config(config: Mapping[str, Any]) -> ModelConfig:
    """The model that a `config.json` describes. Raises ExportError naming what has no form."""
    try:
        problems = [
            f"{name} = {config[name]!r}"
            for name, value in _REQUIRED.items()
            if config.get(name, value) != value
        ]
        for name in ("attention_heads", "ffn_dim"):
            encoder, decoder = (_whole(config, f"{side}_{name}") for side in ("encoder", "decoder"))
            if encoder != decoder:
                problems.append(f"encoder_{name} = {encoder} and decoder_{name} = {decoder}")
        if config["activation_function"] not in _ACTIVATIONS:
            problems.append(f"activation_function = {config['activation_function']!r}")
        d_model, heads = _whole(config, "d_model"), config["encoder_attention_heads"]
        if d_model % heads or d_model % 2:
            problems.append(f"d_model = {d_model} with {heads} heads")
        if (positions := _whole(config, "max_position_embeddings")) > _MOST_POSITIONS:
            problems.append(f"max_position_embeddings = {positions}")
        if problems:
            raise ExportError(f"config.json: this program has no form for {'; '.join(problems)}")
        return ModelConfig(
            encoder_layers=_whole(config, "encoder_layers"),
            decoder_layers=_whole(config, "decoder_layers"),
            d_model=d_model,
            d_ff=config["encoder_ffn_dim"],
            num_heads=heads,
            d_k=d_model // heads,
            d_v=d_model // heads,
            norm="post",
            norm_epsilon=NORM_EPSILON,
            positions="sinusoidal",
            max_length=positions,
            tie=_tie(config),
            activation=_ACTIVATIONS[config["activation_function"]],
            attention_bias=True,
            logits_bias=True,
            dropout=float(config.get("dropout", 0.1)),
            attention_dropout=float(config.get("attention_dropout", 0.0)),
            ffn_dropout=float(config.get("activation_dropout", 0.0)),
        )
    except ExportError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"config.json: is not a Marian model's: {error!r}") from error


def _tie(config: Mapping[str, Any]) -> Literal["all", "target", "none"]:
    """Both sides may share a table that the softmax has no part in: tied to nothing, here."""
    if not config.get("tie_word_embeddings", True):
        return "none"
    return "all" if is_shared(config) else "target"


def is_shared(config: Mapping[str, Any]) -> bool:
    """Whether source and target have one vocabulary, and one table of embeddings."""
    return bool(config.get("share_encoder_decoder_embeddings", True))


def sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """Source and target types. Raises ExportError."""
    src = _whole(config, "vocab_size")
    if is_shared(config) or config.get("decoder_vocab_size") is None:
        return src, src
    return src, _whole(config, "decoder_vocab_size")


def _whole(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or value < 1:
        raise ExportError(f"config.json: {name} = {value!r} is no whole number of at least 1")
    return value


def renumbered(weights: Weights, config: ModelConfig, src: Types, tgt: Types) -> Weights:
    """The weights with rows in this program's order; padding has no share in the softmax."""
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
    return found


def to_state(weights: Weights, config: ModelConfig) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, tied tables once. Sinusoids are not among them: the model makes
    them."""
    weights = reorder_channels(weights, np.argsort(interleaved_from_halves(config.d_model)))
    source, target, softmax = tables(weights, config)
    state: dict[str, np.ndarray] = {}
    if config.tie == "all":
        state[SHARED] = softmax
    else:
        state[TABLES["encoder"]], state[TABLES["decoder"]] = source, target
    if config.tie == "none":
        state[SOFTMAX] = softmax
    bias = weights.get(f"embedding/{SOFTMAX_BIAS}")
    state[BIAS] = (np.zeros(len(softmax), np.float32) if bias is None else bias)[None]
    for ours, theirs in _parts(config):
        if ours.endswith("/norm"):
            state[f"{theirs}.weight"] = weights[f"{ours}/scale"]
            state[f"{theirs}.bias"] = weights[f"{ours}/bias"]
        else:
            kernel, bias = linear(weights, ours)
            state[f"{theirs}.weight"] = kernel.T
            state[f"{theirs}.bias"] = np.zeros(kernel.shape[1]) if bias is None else bias
    return {name: np.ascontiguousarray(array, np.float32) for name, array in state.items()}


def from_state(
    state: State, config: ModelConfig, *, shared: bool, src_types: int, tgt_types: int
) -> Weights:
    """The inverse of `to_state`, of any floating-point dtype.

    `shared` is whether both sides may have one table; whether they must is said by `config.tie`.
    Raises ExportError for an array that is missing, of another shape than `config` has, or
    that nothing here stands for, as a table of its own where the model has but one.
    """
    read = _Reader(state)
    width = config.d_model
    sizes = {"encoder": src_types, "decoder": tgt_types}
    if config.tie == "all":
        table = read(SHARED if SHARED in state else TABLES["encoder"], src_types, width)
        found = dict.fromkeys(TABLES, table)
        for each in (SHARED, *TABLES.values()):
            read.again(each, table)
    else:
        # One for both, which nothing ties to each side's own: where these are there, they are read.
        names = {
            side: SHARED if shared and name not in state else name for side, name in TABLES.items()
        }
        found = {side: read(name, sizes[side], width) for side, name in names.items()}
        if shared:
            read.skip(SHARED)
    softmax = read(SOFTMAX, tgt_types, width) if config.tie == "none" else found["decoder"]
    read.again(SOFTMAX, softmax)
    read.skip(*POSITIONS.values())
    weights: Weights = {
        f"embedding/{SOURCE_TABLE[config.tie]}": found["encoder"],
        f"embedding/{TARGET_TABLE[config.tie]}": found["decoder"],
        f"embedding/{SOFTMAX_TABLE[config.tie]}": softmax,
    }
    heads = (config.num_heads, width // config.num_heads)
    for ours, theirs in _parts(config):
        if ours.endswith("/norm"):
            weights[f"{ours}/scale"] = read(f"{theirs}.weight", width)
            weights[f"{ours}/bias"] = read(f"{theirs}.bias", width)
            continue
        inputs, outputs = width, width
        if ours.endswith("/w_in"):
            outputs = config.d_ff
        elif ours.endswith("/w_out"):
            inputs = config.d_ff
        kernel = np.ascontiguousarray(read(f"{theirs}.weight", outputs, inputs).T)
        bias = read(f"{theirs}.bias", outputs)
        if "attention/" not in ours:
            weights[ours], weights[ours.replace("/w_", "/b_")] = kernel, bias
        elif ours.endswith("/out"):
            weights[ours], weights[f"{ours}_bias"] = kernel.reshape(*heads, width), bias
        else:
            weights[ours] = kernel.reshape(width, *heads)
            weights[f"{ours}_bias"] = bias.reshape(heads)
    bias = np.zeros(tgt_types, np.float32)
    if BIAS in state:
        bias = read(BIAS, *[1] * (np.ndim(state[BIAS]) - 1), tgt_types)
    weights[f"embedding/{SOFTMAX_BIAS}"] = bias.reshape(-1)
    read.finish()
    return reorder_channels(weights, interleaved_from_halves(width))


def _parts(config: ModelConfig) -> Iterator[tuple[str, str]]:
    counts = (config.encoder_layers, config.decoder_layers)
    for side, count in zip(STACKS, counts, strict=True):
        attentions = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
        if side == "encoder":
            del attentions["cross_attention"]
        for number in range(count):
            ours, theirs = f"{side}/{layer_name(number)}", f"model.{side}.layers.{number}"
            for here, there in attentions.items():
                for name in PROJECTIONS:
                    short = "out" if name == "out" else name[0]
                    yield f"{ours}/{here}/{name}", f"{theirs}.{there}.{short}_proj"
                yield f"{ours}/{here}_residual/norm", f"{theirs}.{there}_layer_norm"
            yield f"{ours}/feed_forward/w_in", f"{theirs}.fc1"
            yield f"{ours}/feed_forward/w_out", f"{theirs}.fc2"
            yield f"{ours}/feed_forward_residual/norm", f"{theirs}.final_layer_norm"


def sinusoids_in_halves(length: int, d_model: int) -> Float[np.ndarray, "length d_model"]:
    """The position encodings of these models: sines, then cosines, of the paper's angles."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


class _Reader:
    def __init__(self, state: State) -> None:
        self._state, self._seen = state, set[str]()

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        self._seen.add(name)
        if name not in self._state:
            raise ExportError(f"the checkpoint has no array '{name}'")
        if (found := self._state[name].shape) != shape:
            there, wanted = (" x ".join(map(str, sizes)) or "1" for sizes in (found, shape))
            raise ExportError(
                f"the array '{name}' is {there}, where config.json describes {wanted}"
            )
        array = np.asarray(self._state[name], np.float32)
        if not np.isfinite(array).all():
            raise ExportError(
                f"the array '{name}' holds values that are not numbers: the file is damaged, or "
                "training diverged"
            )
        return array

    def again(self, name: str, array: np.ndarray) -> None:
        """A tied table may stand there more than once, and must be the same each time."""
        self._seen.add(name)
        if name in self._state and not np.array_equal(self._state[name], array):
            raise ExportError(
                f"the array '{name}' is another than the table that config.json ties it to"
            )

    def skip(self, *names: str) -> None:
        self._seen.update(names)

    def finish(self) -> None:
        if unknown := sorted({*self._state} - self._seen):
            shown = ", ".join(map(repr, unknown[:3]))
            more = f" and {len(unknown) - 3} more" if unknown[3:] else ""
            raise ExportError(
                f"the checkpoint has arrays that stand for nothing in a Marian model: {shown}{more}"
            )
