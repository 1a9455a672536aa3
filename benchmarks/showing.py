"""Machines and times as tables show them."""

from __future__ import annotations

from benchmarks.result_file import Machine


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
