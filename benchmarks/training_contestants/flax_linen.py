"""The paper's model in Flax's own layers, as someone would write a trainer with `flax.linen`.

Attention is `nn.MultiHeadDotProductAttention`, dropout `nn.Dropout`, and the softmax sees all
logits at once; one jitted step whose state is donated. Flax's translation example, which is in no
package, is made of the same layers.
"""

import math
import os
from collections.abc import Sequence
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from benchmarks.training_contestants.contest import PAD, Job, Rows, read_rows, serve

Tokens = dict[str, jax.Array]


class Block(nn.Module):
    """Sub-layers of one layer, each with dropout, the sum and layer normalisation after it."""

    job: Job

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        mask: jax.Array | None,
        encoded: jax.Array | None = None,
        cross_mask: jax.Array | None = None,
    ) -> jax.Array:
        x = self.add(x, self.attention("self")(x, mask=mask))
        if encoded is not None:
            x = self.add(x, self.attention("cross")(x, encoded, mask=cross_mask))
        hidden = nn.relu(nn.Dense(self.job.d_ff, dtype=self.job.precision)(x))
        return self.add(x, nn.Dense(self.job.d_model, dtype=self.job.precision)(hidden))

    def attention(self, name: str) -> nn.Module:
        return nn.MultiHeadDotProductAttention(
            self.job.num_heads, dtype=self.job.precision, use_bias=False, name=name
        )

    def add(self, x: jax.Array, output: jax.Array) -> jax.Array:
        output = nn.Dropout(self.job.dropout, deterministic=False)(output)
        return nn.LayerNorm(self.job.norm_epsilon)(x + output.astype(jnp.float32))


class Translation(nn.Module):
    """The encoder and decoder between tied embeddings; gives float32 logits."""

    job: Job

    @nn.compact
    def __call__(self, tokens: Tokens) -> jax.Array:
        job = self.job
        table = nn.Embed(
            job.vocabulary, job.d_model, embedding_init=nn.initializers.normal(job.d_model**-0.5)
        )
        causal = nn.make_causal_mask(tokens["tgt_in"])
        to_src = to_tgt = None
        if "src_kept" in tokens:
            to_src = nn.make_attention_mask(tokens["src_kept"], tokens["src_kept"])
            causal = nn.combine_masks(
                causal, nn.make_attention_mask(tokens["tgt_kept"], tokens["tgt_kept"])
            )
            to_tgt = nn.make_attention_mask(tokens["tgt_kept"], tokens["src_kept"])

        def embed(ids: jax.Array) -> jax.Array:
            x = table(ids) * math.sqrt(job.d_model) + sinusoids(ids.shape[1], job.d_model)
            return nn.Dropout(job.dropout, deterministic=False)(x)

        encoded = embed(tokens["src"])
        for _ in range(job.encoder_layers):
            encoded = Block(job)(encoded, to_src)
        x = embed(tokens["tgt_in"])
        for _ in range(job.decoder_layers):
            x = Block(job)(x, causal, encoded, to_tgt)
        operands = (x.astype(job.precision), table.embedding.astype(job.precision))
        return jnp.einsum("rtd,vd->rtv", *operands, preferred_element_type=jnp.float32)


def sinusoids(length: int, d_model: int) -> np.ndarray:
    """Section 3.5 of the paper: `[1, length, d_model]`."""
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=2)
    return waves.reshape(1, length, d_model).astype(np.float32)


class FlaxTrainer:
    """The module, Adam and their jitted step as a contestant (`contest.Trainer`)."""

    def __init__(self, job: Job) -> None:
        self._batches = [_tokens(rows) for rows in read_rows(job.batches)]
        self.shapes: Sequence[tuple[int, ...]] = [
            (*batch["src"].shape, batch["tgt_in"].shape[1]) for batch in self._batches
        ]
        model = Translation(job)
        optimizer = optax.adam(
            optax.join_schedules(
                [
                    lambda step: job.learning_rate * (step + 1) / job.warmup_steps,
                    lambda step: job.learning_rate * (1 + step / job.warmup_steps) ** -0.5,
                ],
                [job.warmup_steps],
            ),
            job.beta1,
            job.beta2,
            job.epsilon,
        )

        def init(key: jax.Array) -> dict[str, Any]:
            params = model.init({"params": key, "dropout": key}, self._batches[0])["params"]
            return {"params": params, "optimizer": optimizer.init(params), "key": key}

        def step(state: dict[str, Any], tokens: Tokens) -> tuple[dict[str, Any], jax.Array]:
            key, dropout = jax.random.split(state["key"])

            def loss_of(params: Any) -> jax.Array:
                logits = model.apply({"params": params}, tokens, rngs={"dropout": dropout})
                assert isinstance(logits, jax.Array)
                return smoothed_loss(logits, tokens["tgt_out"], job.label_smoothing)

            loss, gradients = jax.value_and_grad(loss_of)(state["params"])
            updates, moments = optimizer.update(gradients, state["optimizer"])
            params = optax.apply_updates(state["params"], updates)
            return {"params": params, "optimizer": moments, "key": key}, loss

        self._state = jax.jit(init)(jax.random.key(1))
        self._step = jax.jit(step, donate_argnums=0)
        self._loss: jax.Array | None = None
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(self._state["params"]))
        device = jax.devices()[0]
        where = (
            f"CPU, {len(os.sched_getaffinity(0))} cores"
            if device.platform == "cpu"
            else device.device_kind
        )
        self.setup = (
            f"flax.linen {flax.__version__}, JAX {jax.__version__}, {job.precision}, {where}"
        )

    def step(self, number: int) -> None:
        before = self._loss
        self._state, self._loss = self._step(self._state, self._batches[number])
        if before is not None:
            jax.block_until_ready(before)  # one step ahead of the device, no more

    def loss(self) -> float:
        assert self._loss is not None
        jax.block_until_ready(self._state)
        return float(self._loss)

    def device_bytes(self) -> int | None:
        stats = jax.local_devices()[0].memory_stats() or {}
        return stats.get("peak_bytes_in_use")


def smoothed_loss(logits: jax.Array, targets: jax.Array, smoothing: float) -> jax.Array:
    """The mean over target tokens of the cross-entropy against the smoothed distribution.

    `logits` is `[rows, length, vocabulary]`, `targets` `[rows, length]`. The mass `smoothing` is
    spread over all types; the distribution is never written out.
    """
    log_sums = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    losses = log_sums - (1 - smoothing) * picked - smoothing * logits.mean(axis=-1)
    is_token = targets != PAD
    return (losses * is_token).sum() / is_token.sum()


def _tokens(rows: Rows) -> Tokens:
    """A batch's arrays, with masks of its tokens if it has padding."""
    arrays = {"src": rows.src, "tgt_in": rows.tgt_in, "tgt_out": rows.tgt_out}
    if not rows.is_full:
        arrays |= {"src_kept": rows.src != PAD, "tgt_kept": rows.tgt_out != PAD}
    return {name: jnp.asarray(array) for name, array in arrays.items()}


if __name__ == "__main__":
    serve(FlaxTrainer)
