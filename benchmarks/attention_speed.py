"""Attention alone, forward and backward: as the model has it, and by JAX's own function.

    python -m benchmarks.attention_speed [--dtype bfloat16] [--models base big] [--rows N]
        [--rounds N]

The model's attention is einsums and a softmax that XLA compiles. On a GPU `jax.nn`'s function can
call cuDNN's fused kernel, which keeps no matrix of weights; whether that is worth a setting is what
this measures, on the paper's 25,000 tokens a side: 32 positions a row without padding, 256 with
rows of uneven length, and 256 packed with several sentences, which a kernel must keep apart. Forms
take turns; a time is the median of the rounds. What a form cannot do is in the result with the
reason. Dropout on the weights, which the paper does not have and the kernel cannot, is left out.
What is known is written after each kind of rows.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from benchmarks import RESULTS
from flaxformer_mt.model.attention import attention, attention_mask
from flaxformer_mt.reproduction.result_file import this_machine, write_result

TOKENS = 24_576  # of a side: the paper's batch, in whole rows of 256
MODELS = {"base": (8, 64), "big": (16, 64)}  # heads, d_k


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Segment ids [rows, positions] of queries and keys alike, and whether later ones are seen."""

    segment_ids: np.ndarray
    causal: bool

    @property
    def packed(self) -> bool:
        return bool(self.segment_ids.max() > 1)


Kernel = Literal["xla", "cudnn"]
Form = Callable[[Array, Array, Array, Array, Work], Array]


class CannotDo(Exception):
    """A form has no way to do a piece of work."""


def works(rows_of_256: int) -> dict[str, Work]:
    """The paper's kinds of self-attention: the encoder's, the decoder's, and a packed decoder's."""
    draw = np.random.default_rng(0)
    # As a bucket is filled.
    uneven = np.arange(256)[None] < draw.integers(128, 257, rows_of_256)[:, None]
    packed = np.arange(256)[None] // draw.integers(24, 40, rows_of_256)[:, None] + 1
    return {
        "short": Work(segment_ids=np.ones((rows_of_256 * 8, 32), np.int32), causal=False),
        "uneven": Work(segment_ids=uneven.astype(np.int32), causal=False),
        "uneven_causal": Work(segment_ids=uneven.astype(np.int32), causal=True),
        "packed_causal": Work(segment_ids=packed.astype(np.int32), causal=True),
    }


def ours(queries: Array, keys: Array, values: Array, mask: Array, work: Work) -> Array:
    del work
    dtype = str(queries.dtype)
    # The model's projections are float32, and rounded where a product takes them.
    queries, keys, values = (part.astype(jnp.float32) for part in (queries, keys, values))
    return attention(queries * queries.shape[-1] ** -0.5, keys, values, mask, dtype)


def by_mask(
    queries: Array, keys: Array, values: Array, mask: Array, work: Work, *, by: Kernel
) -> Array:
    del work
    return jax.nn.dot_product_attention(
        queries, keys, values, mask=mask[:, None], implementation=by
    )


def by_lengths(
    queries: Array, keys: Array, values: Array, mask: Array, work: Work, *, by: Kernel
) -> Array:
    """No matrix of masks at all; only where a row holds one sentence."""
    del mask
    if work.packed:
        raise CannotDo("lengths do not tell sentences of one row apart")
    lengths = jnp.asarray((work.segment_ids > 0).sum(axis=1), jnp.int32)
    return jax.nn.dot_product_attention(
        queries,
        keys,
        values,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
        is_causal=work.causal,
        implementation=by,
    )


FORMS: dict[str, Form] = {
    "ours": ours,
    "jax": functools.partial(by_mask, by="xla"),
    "cudnn_mask": functools.partial(by_mask, by="cudnn"),
    "cudnn_lengths": functools.partial(by_lengths, by="cudnn"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention_speed")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument(
        "--rows", type=int, default=TOKENS // 256, metavar="N", help="rows of 256 positions"
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: by the machine")
    options = parser.parse_args(arguments)
    if min(options.rows, options.rounds) < 1:
        parser.error("--rows and --rounds are at least 1")
    start, machine = time.perf_counter(), this_machine()
    metrics: dict[str, float] = {"rows": options.rows}
    reasons: dict[str, dict[str, list[str]]] = {}  # works by form and reason
    suffix = "" if machine.accelerator == "none" else "_gpu"
    only = "" if options.models == list(MODELS) else f" --models {' '.join(options.models)}"
    for model, (name, work) in itertools.product(options.models, works(options.rows).items()):
        numbers, refusals = contest(work, *MODELS[model], options.dtype, options.rounds)
        metrics |= {f"{model}_{name}_{key}": number for key, number in numbers.items()}
        for form, reason in refusals.items():
            reasons.setdefault(form, {}).setdefault(reason, []).append(f"{model}_{name}")
        print(json.dumps(metrics, indent=2), file=sys.stderr, flush=True)
        write_result(
            options.output or RESULTS / f"attention_speed{suffix}.json",
            command=f"python -m benchmarks.attention_speed --dtype {options.dtype}{only} "
            f"--rows {options.rows} --rounds {options.rounds}",
            config="wmt14_en_de",
            machine=machine,
            seconds=time.perf_counter() - start,
            metrics=metrics,
            signatures={},
            details={
                form: "; ".join(f"{reason} ({', '.join(names)})" for reason, names in works.items())
                for form, works in reasons.items()
            },
        )
    return 0


def contest(
    work: Work, heads: int, width: int, dtype: str, rounds: int
) -> tuple[dict[str, float], dict[str, str]]:
    """Milliseconds, MiB of intermediate values and difference from ours; why others have none."""
    inputs = drawn(work, heads, width, dtype)
    steps: dict[str, Callable[[], object]] = {}
    metrics: dict[str, float] = {}
    reasons: dict[str, str] = {}
    expected = None
    for name, form in FORMS.items():
        try:
            compiled = _step(form, work).lower(*inputs).compile()
            outputs = [np.asarray(output, np.float32) for output in compiled(*inputs)]
        # JAX, XLA and the plugin report a missing kernel in many ways.
        except (CannotDo, RuntimeError, ValueError, NotImplementedError) as error:
            if expected is None:
                raise  # ours comes first, and can do everything
            reasons[name] = str(error).splitlines()[0][:200] or type(error).__name__
            continue
        expected = outputs if expected is None else expected
        metrics[f"{name}_difference"] = _largest_difference(outputs, expected)
        memory = compiled.memory_analysis()
        if memory is not None:
            metrics[f"{name}_mib"] = memory.temp_size_in_bytes / 2**20
        steps[name] = functools.partial(_done, compiled, inputs)

    for name, milliseconds in _medians(steps, rounds).items():
        metrics[f"{name}_ms"] = milliseconds
    return metrics, reasons


def _largest_difference(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(outputs, expected, strict=True))


def _medians(steps: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median milliseconds of steps that take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return {name: 1000 * statistics.median(turns) for name, turns in seconds.items()}


def drawn(work: Work, heads: int, width: int, dtype: str) -> tuple[Array, ...]:
    """Queries, keys, values, mask, and the gradient that comes from above."""
    rows, positions = work.segment_ids.shape
    keys = jax.random.split(jax.random.key(0), 4)
    tensors = [
        jax.random.normal(key, (rows, positions, heads, width), jnp.dtype(dtype)) for key in keys
    ]
    ids = jnp.asarray(work.segment_ids)
    # Outputs at padding don't matter, and forms differ there.
    above = tensors[3] * (ids > 0)[:, :, None, None].astype(dtype)
    return (*tensors[:3], attention_mask(ids, ids, causal=work.causal), above)


def _step(form: Form, work: Work) -> jax.stages.Wrapped:
    """Output and gradients where a sentence is, as a training step has them."""

    @jax.jit
    def step(
        queries: Array, keys: Array, values: Array, mask: Array, above: Array
    ) -> tuple[Array, ...]:
        def loss(queries: Array, keys: Array, values: Array) -> tuple[Array, Array]:
            out = form(queries, keys, values, mask, work)
            return (out.astype(jnp.float32) * above.astype(jnp.float32)).sum(), out

        gradients, out = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(queries, keys, values)
        is_token = (jnp.asarray(work.segment_ids) > 0)[:, :, None, None]  # [rows, positions, 1, 1]
        return (jnp.where(is_token, out.astype(jnp.float32), 0.0), *gradients)

    return step


def _done(compiled: jax.stages.Compiled, inputs: tuple[Array, ...]) -> None:
    jax.block_until_ready(compiled(*inputs))


if __name__ == "__main__":
    sys.exit(main())
