"""How sizes are rounded to few: each is compiled in."""


def one_of_few(number: int, least: int) -> int:
    """The first of `least`, 4 * least, 16 * least ... that is at least `number`."""
    return least if number <= least else one_of_few(number, 4 * least)


def power_of_two_at_least(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def power_of_two_at_most(number: int) -> int:
    """The largest power of two that is at most `number`."""
    return 1 << (number.bit_length() - 1)
