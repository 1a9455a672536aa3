"""The compiled training step is the one that is known: a guard of speed that times nothing."""

import collections
import re

import jax
import pytest

from flaxformer_mt.config import read_config
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.decoding.run.programs import lower_search
from flaxformer_mt.parallel.mesh import on_mesh
from flaxformer_mt.training.optimizer import learning_rate, make_optimizer
from flaxformer_mt.training.program import abstract_batch, build
from flaxformer_mt.training.step import batch_loss, make_train_step
from tests.system.conftest import SMALL
from tests.training import golden

WANTED = golden.of_all_compilers().get(golden.COMPILER)
WITHIN = 0.03
KINDS = [*golden.KINDS, *(f"fused {kind}" for kind in golden.KINDS)]
HOW = "`python -m tests.training.golden`"


@pytest.mark.golden
@pytest.mark.extended  # compiling that takes half a minute
@pytest.mark.skipif(WANTED is None, reason=f"no golden figures of {golden.COMPILER}: {HOW}")
@pytest.mark.parametrize("name", golden.CASES)
def test_as_in_the_golden_file(name):
    ours, theirs = golden.summary(name), dict(WANTED[name])
    for table in (ours, theirs):  # a kind that has gone is 0
        table |= dict.fromkeys(KINDS, 0) | table.pop("operations")
    changes = {
        key: (recorded, ours[key])
        for key, recorded in theirs.items()
        if ours[key] != pytest.approx(recorded, rel=WITHIN, abs=0)
    }
    assert not changes, (
        f"the compiled step of '{name}' has changed, from and to: {changes}; if that is meant, "
        f"write the golden file anew with {HOW}"
    )


@pytest.mark.parametrize(("name", "float32"), [("train", 1), ("eval", 1), ("search", 0)])
def test_a_gpu_gets_bfloat16_products_and_no_custom_call(name, float32):
    """Lowered for CUDA, which needs no GPU. The float32 product is the loss's logit_sum, a matrix
    times a vector."""
    text = lowered_for_cuda(name)
    products = re.findall(r"dot_general .*: \((.*)\) -> (.*?)(?: loc|\n)", text)
    types = collections.Counter(
        re.sub(r"tensor<(?:\d+x)*(\w+)>", r"\1", " ".join(p)) for p in products
    )
    assert types.pop("f32, f32 f32", 0) == float32
    assert set(types) == {"bf16, bf16 f32"} and types.total() > 10
    assert "custom_call" not in text


def lowered_for_cuda(name: str) -> str:
    small = [f"{key}={value}" for key, value in SMALL.items()]
    config = read_config("wmt14_en_de:base", [*small, "model.dtype=bfloat16"])
    program = build(config, src_vocab_size=64, tgt_vocab_size=64, devices=jax.devices()[:1])
    state, mesh = program.abstract, program.mesh
    if name == "search":
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        params = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            state.params,
        )
        form = {"rows": 4, "src_length": 16, "sharding": sharding, "platforms": ("cuda",)}
        return lower_search(params, program.model, config.decoding, **form).as_text()
    schedule = learning_rate(config.training.schedule, config.model.d_model)
    optimizer = make_optimizer(config.training.optimizer, schedule)
    steps = {
        "train": (make_train_step(program.model, config, optimizer, schedule, None), state),
        "eval": (lambda *a: batch_loss(program.model, config, *a, None), state.params),
    }
    step, start = steps[name]
    with on_mesh(mesh):
        traced = jax.jit(step).trace(start, abstract_batch(Shape(8, 16, 16), mesh))
        return traced.lower(lowering_platforms=("cuda",)).as_text()
