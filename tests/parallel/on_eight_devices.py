"""Trains a few steps on meshes of eight simulated devices and prints what came of it, as JSON.

A program of its own: the number of devices is a matter of the whole process.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import jax
import numpy as np

from flaxformer_mt.config import freeze
from flaxformer_mt.data.batch import assemble
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.parallel import MeshError
from flaxformer_mt.training.program import build
from tests.data.pairs import in_memory

VOCAB, STEPS, LENGTH, ROWS = 16, 3, 8, 16

# Every size divides by 8, so that any mesh of 8 devices can split it.
MODEL = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_model": 16,
    "d_ff": 32,
    "num_heads": 8,
    "d_k": 4,
    "d_v": 4,
    "max_length": LENGTH,
    "dropout": 0.1,
    # (Not attention's: no output depends on the bias of keys, so that Adam takes it wherever the
    # rounding of a gradient of 0 points.)
    "logits_bias": True,
}


def experiment(mesh: list[int], rows_multiple: int = ROWS, **model: int) -> Any:
    training = {
        "loss_chunk": 64,
        "best_metric": "loss",
        "validate_bleu": False,
        "optimizer": {"accumulation": 2, "ema_decay": 0.9},
        # Adam's early steps have the gradient's sign: a small rate keeps roundings small, too.
        "schedule": {"kind": "peak", "peak": 0.001, "warmup_steps": 2},
    }
    data = {"filter": {"max_length": LENGTH}, "batch": {"multiple": rows_multiple}}
    sizes = dict(zip(("data", "fsdp", "tensor"), mesh, strict=True))
    tree = {"model": MODEL | model, "data": data, "training": training, "mesh": sizes}
    return freeze(tree, "a test")


def batches() -> list[Any]:
    """Rows of every length, one row in four padding; every other batch has its rows packed."""
    found = []
    for step in range(STEPS):
        random = np.random.default_rng(step)
        rows = 3 * ROWS // 4
        packed = step % 2 == 1
        # With their end marks: one pair of up to 8 tokens, or two or three that make 7.
        counts = [2 + row % 2 for row in range(rows)] if packed else [1] * rows
        lengths = [
            length
            for row, count in enumerate(counts)
            for length in ({2: [4, 3], 3: [2, 3, 2]}[count] if packed else [2 + row % (LENGTH - 1)])
        ]
        src = [random.integers(4, VOCAB, length - 1).tolist() for length in lengths]
        pairs = in_memory(src, [ids[::-1] for ids in src])
        shape = Shape(ROWS, LENGTH, LENGTH)
        found.append(assemble(pairs, np.arange(len(src)), shape, np.asarray(counts)))
    return found


def run(mesh: list[int]) -> tuple[dict[str, Any], list[np.ndarray]]:
    program = build(experiment(mesh), src_vocab_size=VOCAB, tgt_vocab_size=VOCAB)
    state, losses = program.init(), []
    for batch in batches():
        state, metrics = program.train_step(state, batch)
        losses.append(float(metrics["loss"]))
    sums = program.eval_step(state.params, batches()[0])
    leaves = jax.tree_util.tree_leaves_with_path(state)
    wanted = jax.tree.leaves(program.abstract)
    shards = {
        jax.tree_util.keystr(path, simple=True, separator="/"): [
            list(leaf.shape),
            list(leaf.sharding.shard_shape(leaf.shape)),
        ]
        for path, leaf in leaves
    }
    result = {
        "losses": losses,
        "valid": float(sums.nll),
        "shards": shards,
        "as_planned": all(
            leaf.sharding.is_equivalent_to(plan.sharding, leaf.ndim)
            for (_, leaf), plan in zip(leaves, wanted, strict=True)
        ),
        "compilations": program.compilations(),
    }
    return result, [np.asarray(leaf, np.float64) for _, leaf in leaves]


def message(mesh: list[int], **changes: int) -> str:
    vocab = changes.pop("vocab", VOCAB)
    try:
        build(experiment(mesh, **changes), src_vocab_size=vocab, tgt_vocab_size=vocab)
    except MeshError as error:
        return str(error)
    return "no error"


def main() -> None:
    # Its failures are harmless, and pytest is told the same (pyproject.toml).
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    devices = jax.devices()
    assert len(devices) == 8
    # One of the eight devices is what a machine with a single one would compute.
    jax.devices = lambda *_: devices[:1]
    single, wanted = run([1, 1, 1])
    jax.devices = lambda *_: devices
    results = {"single": single, "meshes": {}}
    for name in sys.argv[1:]:
        result, leaves = run([int(size) for size in name.split("x")])
        result["largest_difference"] = max(
            float(np.abs(a - b).max()) for a, b in zip(leaves, wanted, strict=True)
        )
        results["meshes"][name] = result
    results["rows"] = message([8, 1, 1], rows_multiple=4)
    results["micro_rows"] = message([8, 1, 1], rows_multiple=8)
    # 15 types are 16 rows here, which every mesh of eight can split.
    padded = build(
        experiment([1, 1, 8], vocab_multiple=8), src_vocab_size=VOCAB - 1, tgt_vocab_size=VOCAB - 1
    )
    results["padded"] = list(padded.abstract.params["embedding"]["shared"].shape)
    results["vocab"] = message([4, 1, 2], vocab=VOCAB + 1)
    results["too_many"] = message([2, 1, 2])
    print(json.dumps(results))


if __name__ == "__main__":
    main()
