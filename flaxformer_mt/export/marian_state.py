"""Weights under the names, and in the order of channels, of Hugging Face's Marian models.

Their kernels are [out, in]; their sinusoids have all sines before all cosines, so that channels
stand in another order than here; every projection has a bias.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.export.errors import ModelImportError
from flaxformer_mt.export.weights import (
    Attention,
    Layer,
    Linear,
    Norm,
    Stack,
    Weights,
    halves_from_interleaved,
    interleaved_from_halves,
    reorder_channels,
)

State = Mapping[str, np.ndarray]
SHARED = "model.shared.weight"
TABLES = {
    "encoder": "model.encoder.embed_tokens.weight",
    "decoder": "model.decoder.embed_tokens.weight",
}
POSITIONS = {stack: f"model.{stack}.embed_positions.weight" for stack in TABLES}
SOFTMAX = "lm_head.weight"
BIAS = "final_logits_bias"


def to_state(weights: Weights, *, tie: str) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, tied tables once. Sinusoids are not among them: the model makes
    them."""
    weights = reorder_channels(weights, halves_from_interleaved(weights.softmax.shape[1]))
    state: dict[str, np.ndarray] = {}
    if tie == "all":
        state[SHARED] = weights.softmax
    else:
        state[TABLES["encoder"]] = weights.encoder.embedding
        state[TABLES["decoder"]] = weights.decoder.embedding
    if tie == "none":
        state[SOFTMAX] = weights.softmax
    bias = weights.softmax_bias
    state[BIAS] = (np.zeros(len(weights.softmax), np.float32) if bias is None else bias)[None]
    for side, stack in (("encoder", weights.encoder), ("decoder", weights.decoder)):
        for number, layer in enumerate(stack.layers):
            prefix = f"model.{side}.layers.{number}"
            _put_attention(state, f"{prefix}.self_attn", layer.self_attention)
            if layer.cross_attention is not None:
                _put_attention(state, f"{prefix}.encoder_attn", layer.cross_attention)
            _put_linear(state, f"{prefix}.fc1", layer.inner)
            _put_linear(state, f"{prefix}.fc2", layer.outer)
            _put_norm(state, f"{prefix}.final_layer_norm", layer.norm)
    return {name: np.ascontiguousarray(array, np.float32) for name, array in state.items()}


def from_state(
    state: State, config: ModelConfig, *, shared: bool, src_types: int, tgt_types: int
) -> Weights:
    """The inverse of `to_state`, of any floating-point dtype.

    `shared` is whether both sides may have one table; whether they must is said by `config.tie`.
    Raises ModelImportError for an array that is missing, of another shape than `config` has, or
    that nothing here stands for, as a table of its own where the model has but one.
    """
    read = _Reader(state)
    width = config.d_model
    sizes = {"encoder": src_types, "decoder": tgt_types}
    if config.tie == "all":
        name = SHARED if SHARED in state else TABLES["encoder"]
        tables = dict.fromkeys(TABLES, read(name, src_types, width))
        for each in (SHARED, *TABLES.values()):
            read.again(each, tables["encoder"])
    else:
        # One for both, which nothing ties to each side's own: where these are there, they are read.
        names = {
            side: SHARED if shared and name not in state else name for side, name in TABLES.items()
        }
        tables = {side: read(name, sizes[side], width) for side, name in names.items()}
        if shared:
            read.skip(SHARED)
    softmax = read(SOFTMAX, tgt_types, width) if config.tie == "none" else tables["decoder"]
    read.again(SOFTMAX, softmax)
    read.skip(*POSITIONS.values())
    counts = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    layers = {
        side: tuple(
            _layer(read, f"model.{side}.layers.{number}", side, width, config.d_ff)
            for number in range(count)
        )
        for side, count in counts.items()
    }
    bias = np.zeros(tgt_types, np.float32)
    if BIAS in state:
        bias = read(BIAS, *[1] * (np.ndim(state[BIAS]) - 1), tgt_types)
    read.finish()
    weights = Weights(
        encoder=Stack(tables["encoder"], None, layers["encoder"], None),
        decoder=Stack(tables["decoder"], None, layers["decoder"], None),
        softmax=softmax,
        softmax_bias=bias.reshape(-1),
    )
    return reorder_channels(weights, interleaved_from_halves(softmax.shape[1]))


def sinusoids_in_halves(length: int, d_model: int) -> Float[np.ndarray, "length d_model"]:
    """The position encodings of these models: sines, then cosines, of the paper's angles."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


class _Reader:
    """Takes arrays out of a state and notes which it took."""

    def __init__(self, state: State) -> None:
        self._state, self._seen = state, set[str]()

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        self._seen.add(name)
        if name not in self._state:
            raise ModelImportError(f"the checkpoint has no array '{name}'")
        if (found := self._state[name].shape) != shape:
            there, wanted = (" x ".join(map(str, sizes)) or "1" for sizes in (found, shape))
            raise ModelImportError(
                f"the array '{name}' is {there}, where config.json describes {wanted}"
            )
        array = np.asarray(self._state[name], np.float32)
        if not np.isfinite(array).all():
            raise ModelImportError(
                f"the array '{name}' holds values that are not numbers: the file is damaged, or "
                "training diverged"
            )
        return array

    def again(self, name: str, array: np.ndarray) -> None:
        """A tied table may stand there more than once, and must be the same each time."""
        self._seen.add(name)
        if name in self._state and not np.array_equal(self._state[name], array):
            raise ModelImportError(
                f"the array '{name}' is another than the table that config.json ties it to"
            )

    def skip(self, *names: str) -> None:
        self._seen.update(names)

    def finish(self) -> None:
        if unknown := sorted({*self._state} - self._seen):
            shown = ", ".join(map(repr, unknown[:3]))
            more = f" and {len(unknown) - 3} more" if unknown[3:] else ""
            raise ModelImportError(
                f"the checkpoint has arrays that stand for nothing in a Marian model: {shown}{more}"
            )


def _layer(read: _Reader, prefix: str, side: str, d_model: int, d_ff: int) -> Layer:
    own = _attention(read, f"{prefix}.self_attn", d_model)
    cross = _attention(read, f"{prefix}.encoder_attn", d_model) if side == "decoder" else None
    return Layer(
        self_attention=own,
        cross_attention=cross,
        inner=_linear(read, f"{prefix}.fc1", d_model, d_ff),
        outer=_linear(read, f"{prefix}.fc2", d_ff, d_model),
        norm=_norm(read, f"{prefix}.final_layer_norm", d_model),
    )


def _attention(read: _Reader, prefix: str, d_model: int) -> Attention:
    query, key, value, out = (
        _linear(read, f"{prefix}.{name}_proj", d_model, d_model) for name in ("q", "k", "v", "out")
    )
    norm = _norm(read, f"{prefix}_layer_norm", d_model)
    return Attention(query=query, key=key, value=value, out=out, norm=norm)


def _linear(read: _Reader, prefix: str, inputs: int, outputs: int) -> Linear:
    kernel = read(f"{prefix}.weight", outputs, inputs).T
    return Linear(np.ascontiguousarray(kernel), read(f"{prefix}.bias", outputs))


def _norm(read: _Reader, prefix: str, d_model: int) -> Norm:
    return Norm(read(f"{prefix}.weight", d_model), read(f"{prefix}.bias", d_model))


def _put_attention(state: dict[str, np.ndarray], prefix: str, attention: Attention) -> None:
    for name in ("query", "key", "value", "out"):
        short = "out" if name == "out" else name[0]
        _put_linear(state, f"{prefix}.{short}_proj", getattr(attention, name))
    _put_norm(state, f"{prefix}_layer_norm", attention.norm)


def _put_linear(state: dict[str, np.ndarray], prefix: str, linear: Linear) -> None:
    bias = linear.bias
    state[f"{prefix}.weight"] = linear.kernel.T
    state[f"{prefix}.bias"] = np.zeros(linear.kernel.shape[1]) if bias is None else bias


def _put_norm(state: dict[str, np.ndarray], prefix: str, norm: Norm) -> None:
    state[f"{prefix}.weight"], state[f"{prefix}.bias"] = norm.scale, norm.bias
