"""What the compiler makes of a training step, kept so that a change of it is seen; and a command.

    python -m tests.training.golden

writes the figures of this jaxlib in `golden_steps.json` anew and leaves those of others. Nothing is
timed: the figures are operations by kind, FLOPs and bytes of the compiled programs of two sizes, as
XLA's CPU compiler counts them: totals have a loop's body once, operations as often as it runs. A
change is no fault, but has to be looked at: fewer copies, transposes and bytes are what a change
for speed promised. A new JAX changes them, too; the kind of CPU and its cores do not.
"""

import collections
import json
import os
from pathlib import Path
from typing import Any

import jax
import jaxlib

from flaxformer_mt.config import read_config
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.planning.hlo import executions, parse
from flaxformer_mt.training.program import build

FILE = Path(__file__).with_name("golden_steps.json")
COMPILER = f"jaxlib {jaxlib.__version__}"
VOCAB = 8000

# The layers of a full model are all alike: two of each have every kind of operation, and are
# compiled in a third of the time.
FEW = ("model.encoder_layers=2", "model.decoder_layers=2")
CASES: dict[str, tuple[str, tuple[str, ...], Shape]] = {
    "tiny": ("multi30k:tiny", (*FEW, "model.dtype=float32"), Shape(128, 32, 32)),
    "tiny_bfloat16": ("multi30k:tiny", (*FEW, "model.dtype=bfloat16"), Shape(128, 32, 32)),
    "base": ("files:base", (*FEW, "model.dtype=float32"), Shape(32, 32, 32)),
}

# What a program spends its time on, and what a needless layout costs. Elementwise arithmetic is not
# counted by kind: it is free beside reading and writing.
KINDS = (
    "fusion",
    "dot",
    "convolution",
    "transpose",
    "copy",
    "reduce",
    "gather",
    "scatter",
    "while",
    "custom-call",
    "sort",
)
# Whatever the tests' own programs are compiled with.
AS_USERS_HAVE_IT = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
if "fusion_emitters" in os.environ.get("XLA_FLAGS", ""):
    AS_USERS_HAVE_IT["xla_cpu_use_fusion_emitters"] = True
SMALLEST = 1 << 14
"""Bytes of a result that count: scalars, keys and counters are copied too, at no cost."""


def summary(name: str) -> dict[str, Any]:
    """Counts of one step: operations by kind, loops multiplied out, and the compiler's totals."""
    spec, overrides, shape = CASES[name]
    config = read_config(spec, overrides)
    program = build(config, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB, devices=jax.devices()[:1])
    compiled = program.lower_train_step(shape).compile(AS_USERS_HAVE_IT)
    costs: Any = compiled.cost_analysis()
    memory: Any = compiled.memory_analysis()
    counts: collections.Counter[str] = collections.Counter()
    for execution in executions(parse(compiled.as_text() or "")):
        kind = execution.instruction.opcode
        if kind in KINDS and execution.instruction.bytes >= SMALLEST:
            counts[f"fused {kind}" if execution.fused else kind] += execution.times
    return {
        "flops": costs["flops"],
        "bytes_accessed": costs["bytes accessed"],
        "transcendentals": costs.get("transcendentals", 0.0),
        "temporary_bytes": memory.temp_size_in_bytes,
        "operations": dict(sorted(counts.items())),
    }


def of_all_compilers() -> dict[str, Any]:
    """What each version makes of the cases: another one counts otherwise."""
    return json.loads(FILE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def main() -> None:
    ours = {name: summary(name) for name in CASES}
    content = of_all_compilers() | {COMPILER: ours}
    FILE.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(FILE)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
