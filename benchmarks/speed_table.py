"""Training speed beside other packages as one table: a row a contestant, a column a workload."""

from collections.abc import Sequence

from flaxformer_mt.reproduction.result_file import Machine, Result

PREFIX = "training_speed_"
# A README's reader wants the package's name, and what products take.
NAMES = {
    "ours_bfloat16": "**flaxformer_mt**, bfloat16 operands",
    "ours": "**flaxformer_mt**, float32",
    "flax_bfloat16": "Flax's own layers, bfloat16",
    "flax": "Flax's own layers, float32",
    "torch_compile_bfloat16": "PyTorch `nn.Transformer`, compiled, bfloat16",
    "torch_bfloat16": "PyTorch `nn.Transformer`, bfloat16",
    "torch_compile_float32": "PyTorch `nn.Transformer`, compiled, float32",
    "torch_float32": "PyTorch `nn.Transformer`, float32",
    "eole_bfloat16": "eole, bfloat16",
    "eole": "eole, float32",
    "huggingface_bfloat16": "Hugging Face Marian, bfloat16",
    "huggingface": "Hugging Face Marian, float32",
    "joeynmt": "JoeyNMT, float32",
}
_RATE = "_tokens_per_second"
_ABSENT = "–"


def is_contest(result: Result) -> bool:
    return result.name.startswith(PREFIX)


def render(results: Sequence[Result]) -> str:
    """The table of all results of `benchmarks.training_speed`; "" where there is none.

    A cell is the median of the rounds with the lowest and the highest; who did not take part has a
    dash, and who could not run says so.
    """
    contests = [result for result in results if is_contest(result)]
    if not contests:
        return ""
    heads = (
        f"[{result.name.removeprefix(PREFIX)}](docs/results.md#{result.name})"
        for result in contests
    )
    rows = [
        "| training, target tokens/s (lowest to highest) | " + " | ".join(heads) + " |",
        "|---|" + "---:|" * len(contests),
    ]
    for name, shown in NAMES.items():
        cells = [_cell(result, name) for result in contests]
        if set(cells) != {_ABSENT}:
            rows.append(f"| {shown} | " + " | ".join(cells) + " |")
    rows.append(
        "| JAX's float32 matrix product alone, GFLOP/s | "
        + " | ".join(_ceiling(result) for result in contests)
        + " |"
    )
    rows.append(
        "| machine, time of the comparison | "
        + " | ".join(
            f"{show_machine(each.machine)}, {show_seconds(each.seconds)}" for each in contests
        )
        + " |"
    )
    return "\n".join(rows)


def _cell(result: Result, name: str) -> str:
    key = f"{result.name.removeprefix(PREFIX).removesuffix('_gpu')}_{name}"
    metrics = result.metrics
    if f"{key}_failed" in metrics:
        return "could not run"
    if f"{key}{_RATE}" not in metrics:
        return _ABSENT
    middle, lowest, highest = (
        f"{metrics[f'{key}{_RATE}{end}']:,.0f}" for end in ("", "_lowest", "_highest")
    )
    return f"{middle} ({lowest} to {highest})"


def _ceiling(result: Result) -> str:
    rate = result.metrics.get("ceiling_jax_float32_gflops")
    return _ABSENT if rate is None else f"{rate:,.0f}"


def show_machine(machine: Machine) -> str:
    cores = f"{machine.cores} CPU core{'s' if machine.cores != 1 else ''}"
    if machine.instructions:
        cores += f" ({machine.instructions})"
    memory = f"{machine.memory_gib:.0f} GiB"
    if machine.accelerator == "none":
        return f"{cores}, {memory}"
    return f"{machine.accelerator}, {cores}, {memory}"


def show_seconds(seconds: float) -> str:
    """Wall-clock time in the unit that keeps two digits before or one after the point."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
