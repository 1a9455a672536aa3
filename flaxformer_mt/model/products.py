"""Matrix products with `config.dtype` operands and float32 sums, forward and backward."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def product(spec: str, a: Float[Array, "..."], b: Float[Array, "..."], dtype: str) -> Array:
    """`einsum(spec, a, b)` with both operands in `dtype`; the result is float32.

    Every index of an operand stands in the other operand or in the result, so that the two
    gradients are products of the same kind.
    """
    if dtype == "float32":
        return jnp.einsum(spec, a, b)
    return _reduced_product(spec, dtype, (str(a.dtype), str(b.dtype)), a, b)


# Left to automatic differentiation, the gradients of a bfloat16 product with a float32 result are
# float32-by-bfloat16 products (no matrix unit's fast path), and the gradient of a weight is
# rounded to bfloat16 on its way back through the cast. This rule casts the incoming gradient
# instead and keeps both sums in float32.
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
        # In the type given from the start: what devices add up of a weight's gradient has it too.
        jnp.einsum(f"{of_a},{result}->{of_b}", a, gradient, preferred_element_type=given[1]),
    )


_reduced_product.defvjp(_reduced_product_forward, _reduced_product_backward)


def einsum_float32(spec: str, a: Array, b: Array) -> Array:
    """`einsum(spec, a, b)` of operands as they are; sums and result are float32."""
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)
