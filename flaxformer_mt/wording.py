"""Phrases that messages share: a number with its noun, and which lines a remark is about."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as "1 line" and "2,000 lines"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(first: Sequence[int], count: int) -> str:
    """The first of `count` numbers, such as "2, 5, 9, ..."."""
    return ", ".join(map(str, first)) + ", ..." * (count > len(first))


def about_lines(remark: str, first: Sequence[int], count: int) -> str:
    """A remark on `count` lines with the first numbers of them, such as "12 lines with a tab (lines
    2, 5, ...)"."""
    noun = "line" if count == 1 else "lines"
    return f"{counted(count, 'line')} {remark} ({noun} {listed(first, count)})"
