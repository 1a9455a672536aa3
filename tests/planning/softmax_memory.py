"""What the softmax over the vocabulary and its gradient add to a TPU's memory; and a command.

    python -m tests.planning.softmax_memory [LOSS_CHUNK [D_MODEL]]

compiles the loss of the paper's batch alone, for one v5e chip: 24,576 target positions, 37,000
types, bfloat16 operands. What it adds is its peak less what goes in and comes out: hidden states,
the matrix and the gradients of both, which a step has in any case.
"""

import json
import sys

from flaxformer_mt.planning import set_for_compiler

ROWS, LENGTH, VOCAB = 96, 256, 37_000


def added_bytes(chunk: int, d_model: int) -> dict[str, int]:
    """`added`, and the `logits` that would exist at once in float32."""
    set_for_compiler()  # before JAX is imported, if nobody has yet
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from flaxformer_mt.planning.compiler import describe
    from flaxformer_mt.training.loss import slice_width, smoothed_cross_entropy

    device = describe("v5e:1x1").devices[0]
    place = NamedSharding(Mesh(np.array([device]), ("data",)), PartitionSpec())

    def loss(hidden, table, labels, weights):
        sums = smoothed_cross_entropy(
            *(hidden, table, labels, weights), smoothing=0.1, chunk=chunk, dtype="bfloat16"
        )
        return sums.objective

    arguments = (
        ((ROWS, LENGTH, d_model), jnp.float32),
        ((VOCAB, d_model), jnp.float32),
        ((ROWS, LENGTH), jnp.int32),
        ((ROWS, LENGTH), jnp.float32),
    )
    given = [jax.ShapeDtypeStruct(shape, kind, sharding=place) for shape, kind in arguments]
    memory = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(*given).compile().memory_analysis()
    outside = memory.argument_size_in_bytes + memory.output_size_in_bytes
    width = slice_width(ROWS, LENGTH, chunk)
    return {"added": memory.peak_memory_in_bytes - outside, "logits": 4 * ROWS * width * VOCAB}


if __name__ == "__main__":
    numbers = [*map(int, sys.argv[1:]), *(1024, 512)[len(sys.argv) - 1 :]]
    print(json.dumps(added_bytes(*numbers)))
