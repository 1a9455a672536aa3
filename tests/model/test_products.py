"""Products with reduced operands: which numbers are rounded, forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.model.kernels import product
from tests.model.examples import jit

SPECS = {
    "bld,dhk->blhk": ((2, 3, 8), (8, 2, 4)),
    "blhk,bqhk->bhql": ((2, 5, 2, 4), (2, 3, 2, 4)),
    "bhql,blhv->bqhv": ((2, 2, 3, 5), (2, 5, 2, 4)),
    "bqhv,hvd->bqd": ((2, 3, 2, 4), (2, 4, 8)),
    "brhk,brhlk->brhl": ((2, 3, 2, 4), (2, 3, 2, 6, 4)),
    "brhl,brhlv->brhv": ((2, 3, 2, 6), (2, 3, 2, 6, 4)),
    "bld,vd->blv": ((2, 3, 8), (9, 8)),
}


def operands(spec, seed=0):
    rng = np.random.default_rng(seed)
    return [np.float32(rng.standard_normal(shape)) for shape in SPECS[spec]]


def rounded(x):
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16), np.float64)


@pytest.mark.parametrize("spec", SPECS)
def test_bfloat16_rounds_operands_and_nothing_else(spec):
    a, b = operands(spec)
    result, pull = jit(lambda a, b: jax.vjp(lambda a, b: product(spec, a, b, "bfloat16"), a, b))(
        a, b
    )
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(
        result, np.einsum(spec, rounded(a), rounded(b)), atol=1e-5, rtol=1e-5
    )
    gradient = np.float32(np.random.default_rng(1).standard_normal(result.shape))
    of_a, of_b = jit(pull)(gradient)
    inputs, output = spec.split("->")
    first, second = inputs.split(",")
    for found, expected in [
        (of_a, np.einsum(f"{output},{second}->{first}", rounded(gradient), rounded(b))),
        (of_b, np.einsum(f"{output},{first}->{second}", rounded(gradient), rounded(a))),
    ]:
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, atol=2e-5, rtol=1e-5)


def test_float32_casts_nothing():
    spec = "bld,dhk->blhk"
    whole = lambda a, b: product(spec, a, b, "float32").sum()  # noqa: E731
    jaxpr = jax.make_jaxpr(jax.grad(whole, argnums=(0, 1)))(*operands(spec))
    assert "convert_element_type" not in str(jaxpr)
