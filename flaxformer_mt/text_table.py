"""Tables of text for people: the one way they are printed."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)
) -> str:
    """Columns as wide as they need, two blanks apart, to the right but for those in `left`."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
