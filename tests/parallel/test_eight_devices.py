"""A training step on a mesh of eight devices is the step on one, with its arrays really split.

Run as a program, for the number of devices is a matter of the whole process, it trains a few steps
on the meshes that it is given and prints what came of it.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from flaxformer_mt.config import MeshConfig, TrainingConfig, freeze
from flaxformer_mt.data.batch import assemble
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.parallel import process_settings
from flaxformer_mt.parallel.mesh import (
    MeshError,
    copies,
    copies_with_scattered_sum,
    make_mesh,
    on_mesh,
)
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.digests import tree_digest
from flaxformer_mt.training.program import build
from tests.conftest import ROOT, UNOPTIMISED, WARNINGS, environment
from tests.data.pairs import in_memory

pytestmark = pytest.mark.extended
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
TRAINING = {
    "loss_chunk": 64,
    "best_metric": "loss",
    "validate_bleu": False,
    "optimizer": {"accumulation": 2, "ema_decay": 0.9},
    # Adam's early steps have the gradient's sign: a small rate keeps roundings small, too.
    "schedule": {"kind": "peak", "peak": 0.001, "warmup_steps": 2},
}
OTHER_RULES = {
    "adamw": {"weight_decay": 0.1},
    "adafactor": {},
    "lion": {"beta1": 0.5},
    "muon": {"weight_decay": 0.1},
}


def program(
    mesh: list[int],
    *,
    vocab: int = VOCAB,
    rows_multiple: int = ROWS,
    exchange: str = "float32",
    optimizer: str = "adam",
    rank: int = 0,
    **model: Any,
) -> Any:
    data = {"filter": {"max_length": LENGTH}, "batch": {"multiple": rows_multiple}}
    sizes = dict(zip(("data", "fsdp", "tensor"), mesh, strict=True))
    rule = TRAINING["optimizer"] | {"kind": optimizer} | OTHER_RULES.get(optimizer, {})
    training = TRAINING | {
        "exchange_dtype": exchange,
        "optimizer": rule,
        "adapters": {"rank": rank},
    }
    tree = {"model": MODEL | model, "data": data, "training": training, "mesh": sizes}
    return build(freeze(tree, "a test"), src_vocab_size=vocab, tgt_vocab_size=vocab)


def batches() -> list[Any]:
    """Rows of every length, one row in four padding; every other batch has its rows packed."""
    assembled = []
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
        assembled.append(assemble(pairs, np.arange(len(src)), shape, np.asarray(counts)))
    return assembled


def some_state(abstract: Any) -> Any:
    random = np.random.default_rng(0)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), abstract)
    params, base = jax.tree.map(
        lambda leaf: random.normal(0, 0.3, leaf.shape).astype("f4"), (zeros.params, zeros.base)
    )
    return zeros.replace(params=params, ema=params, base=base)


def run(mesh: list[int], *, whole: bool, **changes: Any) -> tuple[dict[str, Any], Any]:
    """What training makes of some state, or of the program's own, which is validated as well."""
    built = program(mesh, **changes)
    plans = jax.tree.map(lambda leaf: leaf.sharding, built.abstract)
    state = built.init() if whole else jax.device_put(some_state(built.abstract), plans)
    losses, norms = [], []
    for batch in batches():
        state, metrics = built.train_step(state, batch)
        losses.append(float(metrics["loss"]))
        norms.append(float(metrics["gradient_norm"]))
    leaves = jax.tree_util.tree_leaves_with_path(state)
    shards = {
        jax.tree_util.keystr(path, simple=True, separator="/"): [
            list(leaf.shape),
            list(leaf.sharding.shard_shape(leaf.shape)),
        ]
        for path, leaf in leaves
    }
    as_planned = all(
        leaf.sharding.is_equivalent_to(plan, leaf.ndim)
        for (_, leaf), plan in zip(leaves, jax.tree.leaves(plans), strict=True)
    )
    result = {
        "losses": losses,
        "norms": norms,
        "valid": float(built.eval_step(state.params, batches()[0]).nll) if whole else 0.0,
        "shards": shards,
        # It stays where it was planned: or else every step would move it, and be compiled anew.
        "stays": as_planned and built.compilations() == 1,
    }
    return result, state


def carry_over(states: list[Any]) -> None:
    """Saves the state of each mesh and restores it on the next one: the same bits there."""

    def form(leaf: jax.Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)

    with (
        tempfile.TemporaryDirectory() as folder,
        Checkpoints(Path(folder), TrainingConfig()) as checkpoints,
    ):
        pairs = [(state.params, state.opt_state) for state in states]
        for step, (trees, successor) in enumerate(zip(pairs, [*pairs[1:], pairs[0]], strict=True)):
            checkpoints.save(Snapshot(step=step, params=trees[0], opt_state=trees[1], position={}))
            got = checkpoints.restore(*jax.tree.map(form, successor))
            restored = jax.tree.leaves((got.params, got.opt_state))
            for ours, theirs, old in zip(
                restored, jax.tree.leaves(successor), jax.tree.leaves(trees), strict=True
            ):
                assert ours.sharding == theirs.sharding
                assert np.asarray(ours).tobytes() == np.asarray(old).tobytes()
            assert tree_digest(trees) == tree_digest(jax.tree.map(np.asarray, trees))


def message(mesh: list[int], **changes: Any) -> str:
    try:
        program(mesh, **changes)
    except MeshError as error:
        return str(error)
    return "no error"


def largest_difference(a: Any, b: Any) -> float:
    return max(
        float(np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)).max())
        for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)
    )


def of_rules(mesh: list[int]) -> dict[str, tuple[dict[str, Any], Any]]:
    """What training makes of some state with each other optimizer, and of adapters."""
    # Wide enough for Adafactor to keep rows and columns.
    rules = {kind: run(mesh, whole=False, optimizer=kind, d_model=32) for kind in OTHER_RULES}
    return rules | {"adapters": run(mesh, whole=False, rank=2, d_model=32)}


def scattered_sums(vocab: int) -> list[Any]:
    """Of a table's gradient, summed whole and into parts: the largest difference, and a part."""
    mesh = make_mesh(MeshConfig())
    random = np.random.default_rng(0)
    table = random.normal(size=(vocab, 4)).astype(np.float32)
    factors = random.normal(size=(8, vocab, 4)).astype(np.float32)

    def gradient(copies_of: Any) -> jax.Array:
        def objective(table: jax.Array) -> jax.Array:
            return (copies_of(table, 8) * factors).sum()

        return jax.jit(jax.grad(objective))(table)

    with on_mesh(mesh):
        whole, parts = gradient(copies), gradient(copies_with_scattered_sum)
    difference = float(np.abs(np.asarray(whole) - np.asarray(parts)).max())
    return [difference, parts.addressable_shards[7].data.shape]


def main() -> None:
    devices = jax.devices()
    assert len(devices) == 8
    # One of the eight devices is what a machine with a single one would compute.
    jax.devices = lambda *_: devices[:1]
    # Initialising and validating take as long to compile as training: only for some meshes.
    in_full = "whole" in sys.argv
    single, state = run([1, 1, 1], whole=in_full)
    states = [state]
    reduced = {"exchange": "bfloat16", "dtype": "bfloat16"}
    exchanges = [run([1, 1, 1], whole=False, **reduced)[0]] if in_full else []
    single_rules = {} if in_full else of_rules([1, 1, 1])
    jax.devices = lambda *_: devices
    meshes = {}
    for name in sys.argv[1 + in_full :]:
        meshes[name], state = run([int(size) for size in name.split("x")], whole=in_full)
        meshes[name]["difference"] = largest_difference(states[0], state)
        states.append(state)
    rules = {}
    for kind, (figures, state) in ({} if in_full else of_rules([2, 2, 2])).items():
        figures_of_one, state_of_one = single_rules[kind]
        difference = largest_difference(state, state_of_one)
        rules[kind] = figures | {"single": figures_of_one, "difference": difference}
    if in_full:
        carry_over(states)
        exchanges.append(run([8, 1, 1], whole=False, **reduced)[0])
    # 15 types are 16 rows here, which every mesh of eight can split.
    padded = program([1, 1, 8], vocab_multiple=8, vocab=VOCAB - 1)
    results = {
        "single": single,
        "meshes": meshes,
        "exchanges": exchanges,
        "rules": rules,
        "exchange": message([8, 1, 1], exchange="bfloat16", dtype="float32"),
        "rows": message([8, 1, 1], rows_multiple=4),
        "micro_rows": message([8, 1, 1], rows_multiple=8),
        "scattered": [scattered_sums(vocab) for vocab in (8 * 64, 8 * 70)],
        "padded": list(padded.abstract.params["embedding"]["shared"].shape),
        "vocab": message([4, 1, 2], vocab=VOCAB + 1),
        "too_many": message([2, 1, 2]),
    }
    print(json.dumps(results))


def on_eight_devices(module: str, arguments: str = "") -> str:
    """What a module of tests prints as a program with so many devices, which a process has."""
    # A flag that XLA doesn't know ends the process.
    flags = f"--xla_force_host_platform_device_count=8 {process_settings.FLAG}"
    variables = environment(XLA_FLAGS=f"{flags} {UNOPTIMISED['XLA_FLAGS']}")
    command = [sys.executable, *WARNINGS, "-m", module, *arguments.split()]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The partitioner warns where it has to replicate what should be split.
    assert "full rematerialization" not in done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["2x2x2", "whole 8x1x1 1x8x1 1x2x4"])
def results(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What came of each mesh, data x fsdp x tensor, and of a single device."""
    return json.loads(on_eight_devices("tests.parallel.test_eight_devices", request.param))


def test_equals_a_single_device(results):
    """Losses, parameters, moments and average after three steps, dropout and micro-batches on."""
    single = results["single"]
    assert len(set(single["losses"])) == 3
    for mesh, figures in results["meshes"].items():
        assert figures["losses"] == pytest.approx(single["losses"], abs=1e-5), mesh
        assert figures["norms"] == pytest.approx(single["norms"], rel=1e-5), mesh
        assert figures["valid"] == pytest.approx(single["valid"], rel=1e-5), mesh
        assert figures["difference"] < 1e-5, mesh
        assert figures["stays"], mesh


def test_each_optimizer_equals_itself_on_a_single_device(results):
    for kind, figures in results["rules"].items():
        assert figures["losses"] == pytest.approx(figures["single"]["losses"], abs=1e-5), kind
        assert figures["difference"] < 1e-5, kind
        assert figures["stays"], kind
    if results["rules"]:
        factored = results["rules"]["adafactor"]["shards"]
        rows = "opt_state/0/0/v_row/encoder/layers_0/feed_forward/w_in"
        assert factored[rows] == [[32], [32]]
        shards = results["rules"]["adapters"]["shards"]
        assert shards["params/encoder/layers_0/feed_forward/w_in/a"] == [[32, 2], [16, 1]]
        assert shards["params/encoder/layers_0/self_attention/query/b"] == [[2, 32], [1, 16]]
        assert shards["base/encoder/layers_0/feed_forward/w_in"] == [[32, 32], [16, 16]]


def test_gradients_exchanged_in_bfloat16(results):
    """The sums are rounded, not scaled; a device keeps the parameters that it updates."""
    assert results["exchange"] == (
        "'training.exchange_dtype' = bfloat16 needs 'model.dtype' = bfloat16"
    )
    if results["exchanges"]:
        single, eight = results["exchanges"]
        assert eight["losses"] == pytest.approx(single["losses"], rel=0.01)
        assert eight["norms"] == pytest.approx(single["norms"], rel=0.02)
        assert eight["stays"]
        assert eight["shards"]["params/embedding/shared"] == [[16, 16], [2, 16]]


def test_arrays_are_split_as_the_rules_say(results):
    for mesh, figures in results["meshes"].items():
        data, fsdp, tensor = (int(size) for size in mesh.split("x"))
        shards = figures["shards"]
        # embed over fsdp; vocab, heads and mlp over tensor. One side more, the heads or the widest
        # that these leave, is split over data.
        for ending, forms, chosen in (
            ("embedding/shared", ([16, 16], [16 // tensor, 16 // fsdp]), {"8x1x1": 0}),
            ("query", ([16, 8, 4], [16 // fsdp, 8 // tensor, 4]), {"8x1x1": 1, "2x2x2": 2}),
            ("attention/out", ([8, 4, 16], [8 // tensor, 4, 16 // fsdp]), {"8x1x1": 0, "2x2x2": 1}),
            ("feed_forward/w_in", ([16, 32], [16 // fsdp, 32 // tensor]), {"8x1x1": 1}),
            ("feed_forward/w_out", ([32, 16], [32 // tensor, 16 // fsdp]), {"8x1x1": 0}),
        ):
            ruled = {name: shapes for name, shapes in shards.items() if name.endswith(ending)}
            # Parameters, two moments and the moving average.
            assert len(ruled) >= 4, ending
            full, part = forms
            spread = list(part)
            if mesh in chosen:
                spread[chosen[mesh]] //= data
            for name, shapes in ruled.items():
                assert shapes == [full, spread], name


def test_a_device_has_its_part_of_the_state(results):
    """All but biases and normalisations, which may be whole."""
    for mesh, figures in results["meshes"].items():
        data, fsdp, tensor = (int(size) for size in mesh.split("x"))
        parts = 8 if data == 8 else fsdp * tensor
        for start in ("params/", "opt_state/"):
            pairs = [pair for name, pair in figures["shards"].items() if name.startswith(start)]
            size, local_size = (sum(math.prod(pair[side]) for pair in pairs) for side in (0, 1))
            assert local_size / size <= 1.15 / parts + 0.02, (mesh, start)


def test_what_a_mesh_cannot_split_is_refused(results):
    assert results["rows"] == (
        "'data.batch.multiple' = 4 must be divisible by 16: 8 devices (mesh.data x mesh.fsdp) "
        "split each of 2 micro-batches"
    )
    assert results["micro_rows"].startswith("'data.batch.multiple' = 8 must be divisible by 16")
    assert "embedding/shared" in results["vocab"]
    assert results["vocab"].endswith(
        "[17, 16] cannot be split evenly over tensor = 2: change the mesh, or the axis of 17 (of a "
        "vocabulary: model.vocab_multiple = 2)"
    )
    assert results["padded"] == [16, 16]
    assert results["too_many"].startswith("'mesh': data 2 x fsdp 1 x tensor 2 does not make 8")


def test_a_table_summed_into_parts_has_the_same_gradient(results):
    """Parts of 64 rows; or of 70, of which 64 are summed at once and the others by the next."""
    assert results["scattered"] == [[0.0, [64, 4]], [0.0, [70, 4]]]


if __name__ == "__main__":
    main()
