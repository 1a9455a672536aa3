"""A run directory with a tiny untrained model, made in the time that its vocabulary takes."""

import functools
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from flaxformer_mt.config import ExperimentConfig, TrainingConfig, default_config, freeze, to_dict
from flaxformer_mt.data import vocabulary
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import RunDirectory

MAX_LENGTH = 32
PAIRS = [
    ("the small cat sees a big dog .", "die kleine katze sieht einen großen hund ."),
    ("a dog runs home , and the cat sleeps .", "ein hund rennt heim , und die katze schläft ."),
    ("who sees the old house ?", "wer sieht das alte haus ?"),
    ("they do not sleep !", "sie schlafen nicht !"),
]
LINES = [source for source, _ in PAIRS]
LONG = " ".join(LINES)  # too long for the model


def config() -> ExperimentConfig:
    tree = default_config()
    tree.model.encoder_layers = tree.model.decoder_layers = 1
    tree.model.d_model = tree.model.d_ff = 16
    tree.model.num_heads = 2
    tree.model.d_k = tree.model.d_v = 8
    tree.model.max_length = tree.data.filter.max_length = MAX_LENGTH
    tree.data.vocabulary.size = 60
    tree.decoding.max_extra_tokens = 4
    tree.decoding.batch_tokens = 1024
    return freeze(tree, "tests")


@functools.partial(jax.jit, static_argnums=0)
def parameters(model: Transformer, seed: int) -> Any:
    ids = jnp.zeros((1, 2), jnp.int32)
    sides = ("src_segment_ids", "tgt_segment_ids", "src_positions", "tgt_positions")
    rows: Any = dict.fromkeys(sides, ids)
    boxed = model.init(jax.random.key(seed), ids, ids, **rows, dropout_key=None)
    return nn.unbox(boxed)["params"]


def make_run(path: Path, bleu_by_step: dict[int, float | None]) -> RunDirectory:
    """A run with a checkpoint a step, each of other random parameters; None: not validated."""
    settings = config()
    run = layout.create(path, to_dict(settings), ["test"])
    vocabularies = vocabulary.train_pair(PAIRS * 5, settings.data.vocabulary)
    vocabularies.save(run.vocabulary)
    model = Transformer(settings.model, vocabularies.src.size, vocabularies.tgt.size)
    with Checkpoints(run.checkpoints, TrainingConfig()) as checkpoints:
        for step, bleu in bleu_by_step.items():
            checkpoints.save(
                Snapshot(
                    step=step,
                    params=parameters(model, step),
                    opt_state={"count": jnp.int32(step)},
                    position={"epoch": 0, "index": step},
                    metrics={} if bleu is None else {"bleu": bleu},
                )
            )
    return run
