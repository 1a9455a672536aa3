"""Tiny models and batches for the tests of this folder."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.parameters import initial_params
from flaxformer_mt.model.transformer import Transformer

VOCAB = 13


def stack_layers(params: Any) -> dict[str, Any]:
    """The inverse of `unstack_layers`."""
    stacked = dict(params)
    for stack in ("encoder", "decoder"):
        unstacked = dict(params[stack])
        layers = [unstacked.pop(name) for name in sorted(unstacked) if name.startswith("layers_")]
        stacked[stack] = unstacked | {"layers": jax.tree.map(lambda *x: jnp.stack(x), *layers)}
    return stacked


def tiny_config(**changes: Any) -> ModelConfig:
    """One encoder layer, two decoder layers, and every width different from every other."""
    base = ModelConfig(
        encoder_layers=1,
        decoder_layers=2,
        d_model=12,
        d_ff=20,
        num_heads=3,
        d_k=4,
        d_v=5,
        max_length=16,
        dropout=0.0,
    )
    return dataclasses.replace(base, **changes)


@functools.cache
def build(config: ModelConfig, *, seed: int = 0) -> tuple[Transformer, dict]:
    """A model and random parameters: no bias is 0 and no scale 1, unlike initial ones."""
    model = Transformer(config, VOCAB, VOCAB if config.tie == "all" else VOCAB + 4)
    return model, random_params(model, seed, spread=0.3)


def random_params(model: Transformer, seed: int, *, spread: float) -> dict:
    """Around 0, scales around 1."""
    rng = np.random.default_rng(seed)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        centre = 1.0 if path[-1].key == "scale" else 0.0
        return np.float32(centre + spread * rng.standard_normal(leaf.shape))

    return jax.tree_util.tree_map_with_path(draw, abstract_params(model))


def abstract_params(model: Transformer) -> dict:
    """The shapes of its parameters."""
    boxed = jax.eval_shape(functools.partial(initial_params, model), jax.random.key(0))
    return nn.meta.unbox(boxed)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rows:
    """A batch as the model takes it."""

    src: np.ndarray
    tgt_in: np.ndarray
    src_segment_ids: np.ndarray
    tgt_segment_ids: np.ndarray
    src_positions: np.ndarray
    tgt_positions: np.ndarray

    def keywords(self) -> dict[str, np.ndarray]:
        """The arguments that the model takes by name."""
        names = ("src_segment_ids", "tgt_segment_ids", "src_positions", "tgt_positions")
        return {name: getattr(self, name) for name in names}


def pack(rows: list[list[tuple[list[int], list[int]]]], src_length: int, tgt_length: int) -> Rows:
    """Each row holds its pairs one after the other, as segments 1, 2, ..., then padding."""
    shapes = {"src": (len(rows), src_length), "tgt": (len(rows), tgt_length)}
    tokens, segments, positions = (
        {side: np.zeros(shape, np.int32) for side, shape in shapes.items()} for _ in range(3)
    )
    for row, pairs in enumerate(rows):
        for side in ("src", "tgt"):
            start = 0
            for segment, pair in enumerate(pairs, start=1):
                ids = pair[side == "tgt"]
                columns = slice(start, start + len(ids))
                tokens[side][row, columns] = ids
                segments[side][row, columns] = segment
                positions[side][row, columns] = np.arange(len(ids))
                start += len(ids)
    return Rows(
        src=tokens["src"],
        tgt_in=tokens["tgt"],
        src_segment_ids=segments["src"],
        tgt_segment_ids=segments["tgt"],
        src_positions=positions["src"],
        tgt_positions=positions["tgt"],
    )


def random_pair(rng: np.random.Generator, src: int, tgt: int) -> tuple[list[int], list[int]]:
    """A sentence pair of these lengths."""
    return rng.integers(1, VOCAB, src).tolist(), rng.integers(1, VOCAB, tgt).tolist()


def packed_rows(seed: int = 0) -> Rows:
    """Three rows: two pairs and padding, one pair and padding, one pair that fills its row."""
    rng = np.random.default_rng(seed)
    first, second = random_pair(rng, 3, 2), random_pair(rng, 2, 4)
    return pack([[first, second], [random_pair(rng, 4, 3)], [random_pair(rng, 7, 8)]], 7, 8)


def apply(
    model: Transformer, params: dict, rows: Rows, *, dropout_seed: int | None = None
) -> jax.Array:
    """The model's output: without dropout, or with this seed's."""
    return model.apply(
        {"params": params},
        rows.src,
        rows.tgt_in,
        **rows.keywords(),
        dropout_key=None if dropout_seed is None else jax.random.key(dropout_seed),
    )


# These programs run once or twice: half the time of compiling them is optimisation.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
hidden_of = jit(apply, static_argnums=0, static_argnames="dropout_seed")


@functools.partial(jit, static_argnums=0, static_argnames=("method", "beams", "length"))
def call(model: Transformer, params: dict, *args: Any, method: str, **keywords: Any) -> Any:
    """Another method of the model, compiled."""
    return model.apply({"params": params}, *args, **keywords, method=method)
