"""Tiny experiments, pairs and batches for the tests of this folder."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from flaxformer_mt.config import ExperimentConfig, default_config, freeze
from flaxformer_mt.data.batch import Batch, assemble
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.training.program import Program, build
from tests.data.pairs import in_memory

VOCAB = 12
SPECIAL = 4  # PAD, BOS, EOS, UNK
MAX_LENGTH = 8

TINY = {
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.d_model": 8,
    "model.d_ff": 12,
    "model.num_heads": 2,
    "model.d_k": 4,
    "model.d_v": 4,
    "model.max_length": MAX_LENGTH,
    "data.filter.max_length": MAX_LENGTH,
    "data.vocabulary.size": VOCAB,
    "data.batch.tokens": 32,
    "data.batch.multiple": 4,
    "data.batch.max_shapes": 2,
    "training.schedule.kind": "peak",
    "training.schedule.peak": 0.01,
    "training.schedule.warmup_steps": 4,
    "training.loss_chunk": 16,
    "training.optimizer.ema_decay": 0.9,
    "training.validate_bleu": False,
    "training.best_metric": "loss",
}


def tiny(changes: Mapping[str, Any] | None = None) -> ExperimentConfig:
    """The smallest experiment that has every part, with some settings changed."""
    tree = default_config()
    tree.update_from_flattened_dict({**TINY, **(changes or {})})
    return freeze(tree, "a test")


@functools.cache
def program() -> Program:
    """That of `tiny`, shared by the tests of a process: compiling is what takes their time."""
    return build_tiny()


def build_tiny(changes: Mapping[str, Any] | None = None) -> Program:
    return build(tiny(changes), src_vocab_size=VOCAB, tgt_vocab_size=VOCAB)


def random_pairs(count: int, seed: int = 0, longest: int = MAX_LENGTH - 1) -> TokenPairs:
    """Sources of random tokens and lengths; each target is its source reversed."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest + 1, count)
    src = [random.integers(SPECIAL, VOCAB, length).tolist() for length in lengths]
    return in_memory(src, [ids[::-1] for ids in src])


def poisoned(batch: Batch) -> Batch:
    """The batch with a token that no table has, which reads NaN: nothing finite comes of it."""
    src = batch.src.copy()
    src[0, 0] = VOCAB
    return dataclasses.replace(batch, src=src)


def uneven_batch(rows: int = 8, seed: int = 0) -> Batch:
    """Rows from one token to the longest possible, the last two of them padding."""
    random = np.random.default_rng(seed)
    lengths = [1 + (3 * row) % (MAX_LENGTH - 1) for row in range(rows - 2)]
    src = [random.integers(SPECIAL, VOCAB, length).tolist() for length in lengths]
    pairs = in_memory(src, [[*ids[1:], ids[0]] for ids in src])
    return assemble(pairs, np.arange(len(src)), Shape(rows, MAX_LENGTH, MAX_LENGTH))


def assert_same(ours: Any, theirs: Any) -> None:
    """Two trees of arrays, bit for bit."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    named = jax.tree_util.tree_leaves_with_path(ours)
    for (path, a), b in zip(named, jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype, path
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), jax.tree_util.keystr(path)


def on_host(tree: Any) -> Any:
    """Copies that a donated state does not take along."""
    return jax.tree.map(np.array, tree)
