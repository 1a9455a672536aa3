"""Markdown tables and how their cells write numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from flaxformer_mt.reproduction.result_file import Machine, Result


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()
) -> str:
    """Columns in `right` hold numbers. A bar within a cell would end it, and is escaped."""
    rule = ["---:" if place in right else "---" for place in range(len(header))]
    lines = [header, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def commit(result: Result) -> str:
    """That of the process that measured it."""
    return short(result.commit)


def short(commit: str) -> str:
    """Still telling of changes that were not committed; a release as it is."""
    if commit.startswith("release"):
        return commit
    return commit[:10] + ("-dirty" if commit.endswith("-dirty") else "")


def machine(found: Machine) -> str:
    if found.accelerator != "none":
        return found.accelerator
    return f"{found.cores} CPU core{'' if found.cores == 1 else 's'}"


def hours(value: float) -> str:
    """Device-hours with two digits that mean something."""
    return f"{value:,.1f}" if value >= 10 else f"{value:.2g}"
