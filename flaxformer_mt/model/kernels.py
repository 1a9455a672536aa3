"""Kernels: their declaration and initial values, and products with float32 sums."""

import functools
import math
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Initializer = nn.initializers.Initializer


def declare(
    module: nn.Module,
    name: str,
    init: Initializer,
    axes: tuple[str | None, ...],
    shape: tuple[int, ...],
) -> Array:
    """A float32 parameter of `module` whose axes carry logical names for the mesh."""
    boxed = nn.with_logical_partitioning(init, axes)
    return cast(Array, module.param(name, boxed, shape, jnp.float32))


def glorot_flattened(input_axes: int, *, gain: float = 1.0) -> Initializer:
    """Glorot uniform of a kernel as the matrix it stands for, times `gain`.

    The first `input_axes` axes are the matrix's rows, the rest its columns: d x (h * d_k) for
    attention projections. Fans of a three-axis kernel as it stands would be wrong.
    """

    def init(key: Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        fan_in = math.prod(shape[:input_axes])
        fan_out = math.prod(shape[input_axes:])
        bound = gain * math.sqrt(6 / (fan_in + fan_out))
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def embedding_normal(d_model: int) -> Initializer:
    """N(0, d_model^-0.5): times sqrt(d_model) at the input, unit variance; logits of order 1."""
    return jax.nn.initializers.normal(d_model**-0.5)


def product(spec: str, a: Float[Array, "..."], b: Float[Array, "..."], dtype: str) -> Array:
    """`einsum(spec, a, b)` with both operands in `dtype`; the result is float32.

    Every index of an operand is also in the other operand or in the result, so both gradients are
    products of the same kind.
    """
    if dtype == "float32":
        return jnp.einsum(spec, a, b)
    return _reduced_product(spec, dtype, (str(a.dtype), str(b.dtype)), a, b)


# Automatic differentiation of a bfloat16 product with a float32 result makes float32-by-bfloat16
# products (which matrix units have no fast path for) and rounds a weight's gradient to bfloat16 on
# its way back through the cast. This rule casts the incoming gradient instead and keeps both sums
# in float32.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _reduced_product(spec: str, dtype: str, given: tuple[str, str], a: Array, b: Array) -> Array:
    return einsum_float32(spec, a.astype(dtype), b.astype(dtype))


def _reduced_product_forward(
    spec: str, dtype: str, given: tuple[str, str], a: Array, b: Array
) -> tuple[Array, tuple[Array, Array]]:
    a, b = a.astype(dtype), b.astype(dtype)
    return einsum_float32(spec, a, b), (a, b)


def _reduced_product_backward(
    spec: str, dtype: str, given: tuple[str, str], operands: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    a, b = operands
    inputs, result = spec.split("->")
    of_a, of_b = inputs.split(",")
    gradient = gradient.astype(dtype)
    return (
        einsum_float32(f"{result},{of_b}->{of_a}", gradient, b).astype(given[0]),
        # In the given type already: devices add up a weight's gradient in it.
        jnp.einsum(f"{of_a},{result}->{of_b}", a, gradient, preferred_element_type=given[1]),
    )


_reduced_product.defvjp(_reduced_product_forward, _reduced_product_backward)


def with_bias(x: Float[Array, "..."], bias: Float[Array, "..."]) -> Float[Array, "..."]:
    """`x + bias` over the last axes. XLA fuses it into the product that `x` is, in float32."""
    return x + jnp.expand_dims(bias, range(x.ndim - bias.ndim))


def einsum_float32(spec: str, a: Array, b: Array) -> Array:
    """`einsum(spec, a, b)` of operands as they are, with float32 sums and result."""
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)
