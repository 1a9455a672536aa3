"""Kernels: their declaration, initial values and products with float32 sums; and dropout."""

import functools
import math
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32


class Dropout(nn.Module):
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate).

    The mask depends only on the "dropout" key, the module's name and the element's index, so it is
    the same on any mesh, with rematerialisation and in a scan, and on a second call. The rate is
    realised to within 2^-32.
    """

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "*axes"], *, deterministic: bool) -> Float[Array, "*axes"]:
        if deterministic or self.rate == 0.0:
            return x
        assert self.scope is not None
        # Not `make_rng`, which counts its calls: `nn.scan` calls a layer more than once.
        key = jax.random.bits(self.scope.rngs["dropout"].as_jax_rng(), (2,), jnp.uint32)
        threshold = min(round(self.rate * 2**32), 2**32 - 1)
        kept = counter_bits(key, x.shape) >= jnp.uint32(threshold)
        # bfloat16 would round the factor itself: by 0.16% for a rate of 0.1.
        return jnp.where(kept, x.astype(jnp.float32) * (2**32 / (2**32 - threshold)), 0.0)


def counter_bits(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """32 random bits for each element of an array of this shape: a keyed hash of its index.

    Two rounds of MurmurHash3's finaliser (Appleby, public domain), each after one word of the key:
    14 integer operations that fuse with what uses them. Threefry, jax.random's generator, takes
    about 100, and on CPU a separate loop over memory: dropout on a million elements, forward and
    backward, takes one core 9 ms with it and 0.4 ms with this.
    """
    index = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = math.prod(shape[axis + 1 :]) % 2**32
        index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride)
    return _mix(_mix(index ^ key[0]) + key[1])


def _mix(bits: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


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
    """Glorot uniform of a kernel as the matrix it stands for, times `gain`; the first `input_axes`
    axes are its rows."""

    def init(key: Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        fan_in, fan_out = math.prod(shape[:input_axes]), math.prod(shape[input_axes:])
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


def einsum_float32(spec: str, a: Array, b: Array) -> Array:
    """`einsum(spec, a, b)` of operands as they are, with float32 sums and result."""
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)
