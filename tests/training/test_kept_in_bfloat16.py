"""Activations kept in bfloat16 between kernels, as on a GPU: gradients, loss, attention."""

import functools
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.config import freeze
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.model.attention import (
    attention,
    attention_mask,
    joined_attention,
    joined_mask,
    joined_rows,
)
from flaxformer_mt.parallel.mesh import RULES, MeshError
from flaxformer_mt.rundir.digests import flatten_paths
from flaxformer_mt.training import loss, loss_by_products
from flaxformer_mt.training.loss import smoothed_cross_entropy
from flaxformer_mt.training.program import Program, build, model_for_device
from flaxformer_mt.training.step import batch_loss
from flaxformer_mt.training.try_step import full_batch

VOCAB, LENGTH = 500, 32


@functools.cache
def program(dtype: str, kept: str, norm: str = "post", **model: Any) -> Program:
    sizes = {"encoder_layers": 4, "decoder_layers": 4, "d_model": 256, "d_ff": 1024}
    heads = {"num_heads": 4, "d_k": 64, "d_v": 64, "max_length": LENGTH}
    types = {"dtype": dtype, "activation_dtype": kept, "norm": norm}
    config = freeze(
        {
            "model": {**sizes, **heads, **types, **model},
            "data": {"vocabulary": {"size": VOCAB}, "filter": {"max_length": LENGTH}},
            "training": {"validate_bleu": False, "best_metric": "loss"},
        },
        "a test",
    )
    return build(config, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB)


def gradient(of: Program, params: Any, batch: Any) -> dict[str, np.ndarray]:
    """Each parameter's, of the loss with dropout."""

    def objective(params: Any) -> jax.Array:
        return batch_loss(of.model, of.config, params, batch, jax.random.key(1)).objective

    # As the step is compiled where activations are kept in bfloat16: no rounding is left out.
    options = {"xla_allow_excess_precision": False}
    with jax.default_matmul_precision("highest"):
        found = jax.jit(jax.grad(objective), compiler_options=options)(params)
    return {name: np.asarray(leaf, np.float64) for name, leaf in flatten_paths(found).items()}


def errors_by_part(found: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> dict[str, float]:
    """The relative error of each part of the model, all layers of a stack together."""
    sums: dict[str, np.ndarray] = {}
    for name, wanted in exact.items():
        part = "/".join(word for word in name.split("/") if not word.startswith("layers"))
        squares = [np.square(found[name] - wanted).sum(), np.square(wanted).sum()]
        sums[part] = sums.get(part, 0) + np.array(squares)
    return {part: float(np.sqrt(error / size)) for part, (error, size) in sums.items()}


# Small models vary more: of 2 + 2 layers of width 128, a part's error grew by up to 1.38.
@pytest.mark.extended
@pytest.mark.parametrize(("norm", "steps"), [("post", 0), ("post", 60), ("pre", 0)])
def test_gradients_are_nearly_as_good_as_those_of_wider_activations(norm, steps):
    exact = program("float32", "float32", norm)
    state = exact.init()
    batch = full_batch(Shape(32, LENGTH, LENGTH), exact, longest=20)
    for _ in range(steps):
        state, _ = exact.train_step(state, batch)
    params = jax.device_get(state.params)
    wanted = gradient(exact, params, batch)
    wide, narrow = (
        errors_by_part(gradient(program("bfloat16", kept, norm), params, batch), wanted)
        for kept in ("float32", "bfloat16")
    )
    assert all(0 < error < 0.1 for error in wide.values())
    ratios = {part: narrow[part] / wide[part] for part in wide}
    assert max(ratios.values()) < 1.3, ratios


def test_what_a_layer_leaves_to_the_next_has_the_kept_type():
    def passed_on(kept: str, norm: str) -> set[Any]:
        of = program("bfloat16", kept, norm)
        batch = full_batch(Shape(8, LENGTH, LENGTH), of, longest=16)
        _, captured = jax.eval_shape(
            lambda params: of.model.apply(
                {"params": params},
                batch.src,
                src_segment_ids=batch.src_segment_ids,
                src_positions=batch.src_positions,
                dropout_key=None,
                method="encode",
                capture_intermediates=lambda module, _: type(module).__name__ == "EncoderLayer",
            ),
            of.abstract.params,
        )
        found = flatten_paths(captured["intermediates"])
        return {str(leaf.dtype) for name, leaf in found.items() if "__call__" in name}

    assert passed_on("bfloat16", "post") == {"bfloat16"}
    assert passed_on("float32", "post") == {"float32"}
    assert passed_on("bfloat16", "pre") == {"float32"}  # the sum that nothing normalises


def summed_exactly(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """A product of the operands as they are, in float32."""
    with jax.enable_x64(True):
        wide = jnp.einsum(spec, a.astype(jnp.float64), b.astype(jnp.float64))
        return wide.astype(jnp.float32)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("gain", [0.3, 0.6, 1.0])
def test_a_sure_label_s_gradient_is_as_good_as_it_was(monkeypatch, gain, smoothing):
    """Its terms cancel nearly: what rounding leaves of them must not. Products are summed exactly,
    since in what order a CPU sums, and with which instructions, makes more of a difference."""
    for module in (loss, loss_by_products):
        monkeypatch.setattr(module, "product", summed_exactly)
    random = np.random.default_rng(4)
    table = 0.5 * random.standard_normal((VOCAB, 64))
    labels = random.integers(0, 20, (4, 32))  # each several times
    hidden = gain * table[labels] + 0.1 * random.standard_normal((4, 32, 64))
    bias = 0.1 * random.standard_normal(VOCAB)
    # Operands that bfloat16 holds as they are: what differs is what the forms round inside.
    arrays = [jnp.asarray(x, jnp.bfloat16).astype(jnp.float32) for x in (hidden, table, bias)]
    weights = jnp.ones(labels.shape, jnp.float32)

    def gradients(dtype: str, activation_dtype: str) -> Any:
        def objective(hidden: Any, table: Any, bias: Any) -> jax.Array:
            form = {"smoothing": smoothing, "chunk": 0, "dtype": dtype, "bias": bias}
            return smoothed_cross_entropy(
                *(hidden, table, jnp.asarray(labels), weights),
                **form,
                activation_dtype=activation_dtype,
            ).objective

        return jax.grad(objective, (0, 1, 2))(*arrays)

    forms = [("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")]
    for exact, wide, narrow in zip(*(gradients(*form) for form in forms), strict=True):
        size = np.linalg.norm(exact)
        allowed = 1.3 * np.linalg.norm(wide - exact) / size
        assert np.linalg.norm(narrow - exact) / size < max(allowed, 2e-3)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("types", [None, 490])
def test_the_loss_by_products_is_the_loss(with_bias, types):
    random = np.random.default_rng(3)
    hidden = jnp.asarray(random.standard_normal((4, 12, 64)), jnp.float32)
    table = jnp.asarray(0.3 * random.standard_normal((VOCAB, 64)), jnp.float32)
    bias = jnp.asarray(random.standard_normal(VOCAB), jnp.float32) if with_bias else None
    labels = jnp.asarray(random.integers(0, 490, (4, 12)), jnp.int32)
    weights = jnp.asarray(random.random((4, 12)) < 0.8, jnp.float32)

    def sums(kept: str, dtype: str, chunk: int, *arrays: Any) -> Any:
        hidden, table, *bias = arrays
        return smoothed_cross_entropy(
            *(hidden, table, labels, weights),
            **{
                "smoothing": 0.1,
                "chunk": chunk,
                "dtype": dtype,
                "activation_dtype": kept,
                "types": types,
            },
            bias=bias[0] if bias else None,
        )

    arrays = (hidden, table) if bias is None else (hidden, table, bias)
    argnums = tuple(range(3, 3 + len(arrays)))

    def gradients(*form: Any) -> Any:
        return jax.grad(lambda *x: sums(*x).objective, argnums)(*form, *arrays)

    # Operands that bfloat16 holds as they are: what differs is what the forms round inside.
    hidden, table = (x.astype(jnp.bfloat16).astype(jnp.float32) for x in (hidden, table))
    arrays = (hidden, table, *arrays[2:])
    wanted = sums("float32", "float32", 0, *arrays)
    exact, wide = gradients("float32", "float32", 0), gradients("float32", "bfloat16", 0)
    for chunk in (0, 16):
        found = sums("bfloat16", "bfloat16", chunk, *arrays)
        assert found.objective == pytest.approx(float(wanted.objective), rel=2e-4)
        assert found.nll == pytest.approx(float(wanted.nll), rel=2e-4)
        narrow = gradients("bfloat16", "bfloat16", chunk)
        for of_wide, of_narrow, of_exact in zip(wide, narrow, exact, strict=True):
            size = np.linalg.norm(of_exact)
            error = np.linalg.norm(of_narrow - of_exact) / size
            assert error < max(1.3 * np.linalg.norm(of_wide - of_exact) / size, 2e-3)
    if types is not None:
        assert not np.any(narrow[1][types:])  # padding


@pytest.mark.parametrize(
    ("rows", "length", "joined"), [(8, 32, 4), (6, 32, 3), (7, 24, 1), (8, 200, 1)]
)
def test_short_rows_are_joined_to_the_kernel_s_tile(rows, length, joined):
    assert joined_rows(rows, length) == joined


def packed_segments(random: np.random.Generator, rows: int, length: int) -> np.ndarray:
    """[rows, length]: sentences 1, 2 and 3 of any length above zero, then padding, 0."""
    extra = random.integers(0, 4, (rows, length - 3))
    numbers = np.concatenate([np.tile([1, 2, 3], (rows, 1)), extra], axis=1)
    ordered = np.sort(np.where(numbers == 0, 4, numbers), axis=1)
    return np.where(ordered == 4, 0, ordered).astype(np.int32)


@pytest.mark.parametrize(
    ("queries", "keys", "causal"),
    [(32, 32, True), (24, 32, False), (13, 21, False), (131, 67, False), (67, 67, True)],
)
def test_joined_packed_rows_attend_as_they_do_alone(queries, keys, causal):
    random = np.random.default_rng(0)
    rows, heads, width = 8, 2, 16
    q, k, v = (
        jnp.asarray(random.standard_normal((rows, length, heads, width)), jnp.float32)
        for length in (queries, keys, keys)
    )
    of_queries, of_keys = (packed_segments(random, rows, length) for length in (queries, keys))
    of_keys = of_queries if causal else of_keys
    mask = attention_mask(jnp.asarray(of_queries), jnp.asarray(of_keys), causal=causal)
    real = of_queries > 0

    lengths = []

    def attend(*arrays: jax.Array, mask: jax.Array) -> jax.Array:
        lengths.extend(mask.shape[2:])
        return jax.nn.dot_product_attention(*arrays, mask=mask)

    def by_kernel(*arrays: Any) -> jax.Array:
        return joined_attention(attend, *arrays, mask)

    def by_products(q: Any, k: Any, v: Any) -> jax.Array:
        return attention(q * width**-0.5, k, v, mask, "float32")

    found, wanted = by_kernel(q, k, v), by_products(q, k, v)
    np.testing.assert_allclose(found[real], wanted[real], rtol=1e-5, atol=1e-6)
    assert lengths and all(length % 8 == 0 for length in lengths)  # what cuDNN takes
    weights = real[:, :, None, None] * random.standard_normal(found.shape)
    gradients = [
        jax.grad(lambda *x, form=form: (form(*x) * weights).sum(), (0, 1, 2))(q, k, v)
        for form in (by_kernel, by_products)
    ]
    for of_kernel, of_products in zip(*gradients, strict=True):
        np.testing.assert_allclose(of_kernel, of_products, rtol=1e-4, atol=1e-5)


def test_only_rows_of_one_device_are_joined():
    mesh = jax.sharding.AbstractMesh((2, 2, 2), ("data", "fsdp", "tensor"))
    with jax.sharding.use_abstract_mesh(mesh), nn.logical_axis_rules(RULES):
        assert joined_rows(32, 32) == 4  # 8 rows on each of 2 x 2 parts
        assert joined_rows(8, 32) == 2
        assert joined_rows(6, 32) == 1  # not split evenly


def test_a_joined_mask_keeps_rows_apart():
    mask = jnp.ones((4, 2, 3), bool)
    joined = np.asarray(joined_mask(mask, 2))
    assert joined.shape == (2, 4, 6)
    expected = np.kron(np.eye(2, dtype=bool), np.ones((2, 3), bool))
    assert (joined == expected).all()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"dtype": "float32", "kept": "bfloat16"}, "'model.activation_dtype' = bfloat16 needs"),
        (
            {"dtype": "bfloat16", "kept": "bfloat16", "attention_kernel": "cudnn"},
            "'model.attention_kernel' = cudnn needs an NVIDIA GPU from Ampere",
        ),
    ],
)
def test_forms_that_a_device_does_not_have(model, message):
    with pytest.raises(MeshError, match=message):
        program(**model)


@pytest.mark.parametrize(
    ("capability", "model", "form"),
    [
        ("9.0", {}, ("bfloat16", "cudnn")),
        ("8.0", {"d_k": 128, "d_v": 128}, ("bfloat16", "cudnn")),
        ("9.0", {"attention_kernel": "einsum"}, ("bfloat16", "einsum")),
        ("9.0", {"activation_dtype": "float32"}, ("float32", "einsum")),
        ("9.0", {"dtype": "float32"}, ("float32", "einsum")),
        ("7.5", {}, ("bfloat16", "einsum")),  # a T4
        ("gfx942", {}, ("bfloat16", "einsum")),  # AMD's
        ("9.0", {"d_v": 32}, ("bfloat16", "einsum")),
        ("9.0", {"d_k": 20, "d_v": 20}, ("bfloat16", "einsum")),
        ("9.0", {"d_k": 256, "d_v": 256}, ("bfloat16", "einsum")),
        ("9.0", {"attention_dropout": 0.1}, ("bfloat16", "einsum")),
    ],
)
def test_the_form_that_a_gpu_gets(capability, model, form):
    device: Any = SimpleNamespace(platform="gpu", compute_capability=capability)
    config = freeze({"model": {"dtype": "bfloat16", **model}}, "a test").model
    settled = model_for_device(config, device)
    assert (settled.activation_dtype, settled.attention_kernel) == form


def test_a_kernel_that_a_gpu_lacks_is_named_with_what_it_needs():
    device: Any = SimpleNamespace(platform="gpu", compute_capability="7.5")
    model = {"dtype": "bfloat16", "attention_kernel": "cudnn", "d_v": 32}
    config = freeze({"model": model}, "a test").model
    with pytest.raises(MeshError) as error:
        model_for_device(config, device)
    assert str(error.value) == (
        "'model.attention_kernel' = cudnn needs an NVIDIA GPU from Ampere (A100) on and "
        "'model.d_k' = 'model.d_v'"
    )


def test_a_cpu_chooses_neither():
    config = program("bfloat16", "auto").config.model
    assert (config.activation_dtype, config.attention_kernel) == ("float32", "einsum")
    assert config.kept_dtype == "float32"
    narrow = program("bfloat16", "bfloat16").config.model
    assert narrow.kept_dtype == "bfloat16"
    assert narrow.for_search.kept_dtype == "float32"
