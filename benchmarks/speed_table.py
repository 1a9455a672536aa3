"""Training speed beside other packages as one table: a row a contestant, a column a workload."""

from collections.abc import Sequence

from flaxformer_mt.reproduction.result_file import Machine, Result

PREFIX = "training_speed_"
# For a README's reader: the package's name, and the number type of its matrix products.
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
    heads = (f"[{result.name.removeprefix(PREFIX)}](#{result.name})" for result in contests)
    rows = [
        "| training, target tokens/s (lowest to highest) | " + " | ".join(heads) + " |",
        "|---|" + "---:|" * len(contests),
    ]
    for name, title in NAMES.items():
        cells = [_cell(result, name) for result in contests]
        if set(cells) != {_ABSENT}:
            rows.append(f"| {title} | " + " | ".join(cells) + " |")
    rows.append(
        "| JAX's float32 matrix product alone, GFLOP/s | "
        + " | ".join(_ceiling(result) for result in contests)
        + " |"
    )
    rows.append(
        "| machine, time of the comparison | "
        + " | ".join(
            f"{show_machine(contest.machine)}, {show_seconds(contest.seconds)}"
            for contest in contests
        )
        + " |"
    )
    return "\n".join(rows)


def leads(results: Sequence[Result]) -> str:
    """How many times as fast as the fastest other package this one trains, contest by contest."""
    ratios = []
    for result in filter(is_contest, results):
        prefix = result.name.removeprefix(PREFIX)
        rates = {name: result.metrics.get(f"{prefix}_{name}{_RATE}", 0.0) for name in NAMES}
        ours = max(rate for name, rate in rates.items() if name.startswith("ours"))
        fastest_peer = max(rate for name, rate in rates.items() if not name.startswith("ours"))
        if fastest_peer:
            ratios.append(f"{prefix} {ours / fastest_peer:.2f}")
    return ", ".join(ratios)


def draw(result: Result) -> str:
    """An SVG with a bar per contestant, the fastest first: its median in target tokens/s."""
    prefix = result.name.removeprefix(PREFIX)
    rates = {
        contestant.replace("*", "").replace("`", ""): result.metrics[key]
        for name, contestant in NAMES.items()
        if (key := f"{prefix}_{name}{_RATE}") in result.metrics
    }
    rows, fastest = sorted(rates.items(), key=lambda row: -row[1]), max(rates.values())
    title = f"Training the {prefix} model on {show_machine(result.machine)}: target tokens/s"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {24 * len(rows) + 44}" '
        f'font-family="sans-serif" font-size="13" role="img" aria-label="{title}">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="12" y="22" font-weight="bold">{title}</text>',
    ]
    for place, (contestant, rate) in enumerate(rows):
        y, width = 36 + 24 * place, 360 * rate / fastest
        color = "#0969da" if contestant.startswith("flaxformer_mt") else "#afb8c1"
        lines += [
            f'<text x="300" y="{y + 14}" text-anchor="end">{contestant}</text>',
            f'<rect x="310" y="{y}" width="{width:.1f}" height="18" fill="{color}"/>',
            f'<text x="{316 + width:.1f}" y="{y + 14}">{rate:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>\n"])


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
