"""The encoder and decoder stacks, unrolled or scanned, with or without remat."""

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.attention import Hidden, KeysValues, Mask, Newest, Seen
from flaxformer_mt.model.dropout import DropoutKey, layer_key
from flaxformer_mt.model.layers import DecoderLayer, EncoderLayer, LayerNorm

L = TypeVar("L", bound=nn.Module)


class Encoder(nn.Module):
    config: ModelConfig

    def setup(self) -> None:
        self.layers = _layers(EncoderLayer, self.config, self.config.encoder_layers)
        # Pre-LN leaves the residual sum un-normalised.
        self.norm = LayerNorm(self.config) if self.config.norm == "pre" else None

    def __call__(self, x: Hidden, mask: Mask, *, dropout_key: DropoutKey) -> Hidden:
        count = self.config.encoder_layers
        x = _run(self.layers, x, (mask,), self.config, count, dropout_key=dropout_key)
        return x if self.norm is None else self.norm(x)


class Decoder(nn.Module):
    config: ModelConfig

    def setup(self) -> None:
        self.layers = _layers(DecoderLayer, self.config, self.config.decoder_layers)
        self.norm = LayerNorm(self.config) if self.config.norm == "pre" else None

    def __call__(
        self,
        x: Hidden,
        encoded: Hidden,
        self_mask: Mask,
        cross_mask: Mask,
        *,
        dropout_key: DropoutKey,
    ) -> Hidden:
        context = (encoded, self_mask, cross_mask)
        count = self.config.decoder_layers
        x = _run(self.layers, x, context, self.config, count, dropout_key=dropout_key)
        return x if self.norm is None else self.norm(x)

    def cross_keys_values(self, encoded: Hidden) -> dict[str, KeysValues]:
        """Each layer's keys and values of the source, by layer name."""
        layers = self._single_layers()
        return {name: layer.cross_keys_values(encoded) for name, layer in layers.items()}

    def decode_step(
        self,
        x: Newest,
        index: Int[Array, ""],
        past: dict[str, KeysValues],
        source: dict[str, KeysValues],
        visible: Seen,
        src_mask: Seen,
    ) -> tuple[Newest, dict[str, KeysValues], Float[Array, "rows beams src_length"]]:
        """The stack at position `index` of every beam, `past` with that position added, and each
        beam's attention to the source: the heads' mean in the aligning layer."""
        new, weights = {}, []
        for name, layer in self._single_layers().items():
            x, new[name], attended = layer.decode_step(
                x, index, past[name], source[name], visible, src_mask
            )
            weights.append(attended)
        attended = weights[aligning_layer(self.config)].mean(axis=1)
        return x if self.norm is None else self.norm(x), new, attended

    def _single_layers(self) -> dict[str, DecoderLayer]:
        """The layers one by one, in either form: a step of decoding is small, so it is unrolled."""
        if not isinstance(self.layers, nn.Module):
            return {layer_name(i): layer for i, layer in enumerate(self.layers)}
        stacked = self.layers.variables["params"]
        return {
            layer_name(i): DecoderLayer(self.config, parent=None).bind(
                {"params": jax.tree.map(lambda leaf, i=i: leaf[i], stacked)}
            )
            for i in range(self.config.decoder_layers)
        }


def aligning_layer(config: ModelConfig) -> int:
    """The decoder's last layer but one, from 0 (or its only one): its attention over the source
    aligns words best (Garg et al., 2019)."""
    return max(config.decoder_layers - 2, 0)


def layer_name(index: int) -> str:
    """The name of an unrolled layer in the parameters, and of any layer in a decoding cache."""
    return f"layers_{index}"


def _layers(kind: Callable[[ModelConfig], L], config: ModelConfig, count: int) -> L | list[L]:
    return kind(config) if config.scan_layers else [kind(config) for _ in range(count)]


def _run(
    layers: nn.Module | Sequence[nn.Module],
    x: Hidden,
    context: tuple[Array, ...],
    config: ModelConfig,
    count: int,
    *,
    dropout_key: DropoutKey,
) -> Hidden:
    """`x` after all layers. Each gets a key of its own, the same in either form."""

    def apply_layer(
        layer: nn.Module, x: Array, key: DropoutKey, *context: Array
    ) -> tuple[Array, None]:
        return layer(x, *context, dropout_key=key), None

    if config.remat:
        # A scan keeps the recomputation apart; elsewhere XLA would merge it away.
        apply_layer = nn.remat(apply_layer, prevent_cse=not config.scan_layers)

    if not isinstance(layers, nn.Module):
        for number, layer in enumerate(layers):
            x, _ = apply_layer(layer, x, layer_key(dropout_key, number), *context)
        return x

    scan = nn.scan(
        apply_layer,
        variable_axes={"params": 0, "intermediates": 0},
        split_rngs={"params": True},
        in_axes=(0, *(nn.broadcast for _ in context)),
        length=count,
        metadata_params={nn.PARTITION_NAME: "layers"},
    )
    keys = jax.vmap(functools.partial(layer_key, dropout_key))(jnp.arange(count))
    x, _ = scan(layers, x, keys, *context)
    return x
