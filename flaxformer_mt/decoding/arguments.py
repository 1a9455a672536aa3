"""Checks of what callers pass to `Translator`.

A `str` is a sequence of `str`s and `bytes` are a sequence of numbers: without a check, a forgotten
pair of brackets would be searched letter by letter. Each function returns plain lists, or raises
TypeError or ValueError with the argument's name and what it takes.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from typing import Any, get_args

import numpy as np

from flaxformer_mt.config import ConfigError, DecodingConfig
from flaxformer_mt.config.freeze import check_value, field_types
from flaxformer_mt.decoding.errors import TargetError
from flaxformer_mt.decoding.text.segments import Overlong, Target
from flaxformer_mt.errors import nearest

_NO_LISTS = (str, bytes, bytearray, Mapping)


def texts(name: str, value: Any) -> list[str]:
    """A list of texts, of a set too; a single `str` is one text, or none if it is empty."""
    if isinstance(value, str):
        return [value] if value else []
    return _texts(name, value, f"{name} must be a str or a list of str")


def lines(name: str, value: Any) -> list[str]:
    """A list of texts, one per line."""
    requirement = f"{name} must be a list of str"
    return _texts(name, _ordered(value, requirement), requirement)


def prefixes(value: Any, count: int) -> list[str]:
    """One prefix for each of `count` lines. A `str` is every line's; None stands for none."""
    if value is None or isinstance(value, str):
        return [value or ""] * count
    texts_given = _texts("prefixes", value, "prefixes must be a str or a list of str")
    check_count("prefixes", texts_given, count)
    return texts_given


def phrases(name: str, value: Any, count: int) -> list[list[str]]:
    """A list of phrases for each of `count` lines. A line's single `str` is one phrase, or none if
    it is empty; None stands for no phrases in any line."""
    if value is None:
        return [[] for _ in range(count)]
    requirement = (
        f'{name} must be a list with a list of phrases per line, such as [["a phrase"], []]'
    )
    lists = [
        texts(f"{name}[{number}]", of_line)
        for number, of_line in enumerate(_ordered(value, requirement))
    ]
    check_count(name, lists, count)
    return lists


def pairs(value: Any) -> list[tuple[str, Target]]:
    """Sources with translations, each a text or token ids. Raises TargetError for other tokens."""
    checked = []
    for number, pair in enumerate(
        _ordered(value, "pairs must be a list of (source, translation) tuples")
    ):
        if isinstance(pair, (*_NO_LISTS, AbstractSet)) or not _has_two(pair):
            raise TypeError(f"pair {number} is {_shown(pair)}, not a (source, translation) tuple")
        source, target = pair
        if not isinstance(source, str):
            raise TypeError(f"pair {number}: the source must be a str, not {_shown(source)}")
        checked.append((source, _target(number, target)))
    return checked


def whole_number(name: str, value: Any) -> int:
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} must be an integer, not {_shown(value)}")


def objects(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    """Objects of this class; None stands for none."""
    requirement = f"{name} must be a list of {kind.__name__}"
    if value is None:
        return ()
    checked = tuple(_ordered(value, requirement))
    for number, element in enumerate(checked):
        if not isinstance(element, kind):
            raise TypeError(f"{name}[{number}] must be a {kind.__name__}, not {_shown(element)}")
    return checked


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a bool, not {_shown(value)}")
    return bool(value)


def overlong(value: Any) -> Overlong:
    return one_of("overlong", value, get_args(Overlong))


def one_of(name: str, value: Any, choices: Sequence[str]) -> Any:
    """One of `choices`. Raises ValueError for another word, and TypeError for another type."""
    if value in choices:
        return value
    known = " or ".join(map(repr, choices))
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f"{name} must be {known}, not {_shown(value)}")


def decoding_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values for settings of `DecodingConfig`, each of the setting's type."""
    known = field_types(DecodingConfig)
    checked = {}
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"with_config: unknown setting {name!r}; {nearest(name, known)}")
        plain = value.item() if isinstance(value, np.generic) else value
        try:
            checked[name] = check_value(plain, known[name], name, "with_config")
        except ConfigError as error:
            of_type = isinstance(plain, str if get_args(known[name]) else known[name])
            raise (ValueError if of_type else TypeError)(str(error)) from None
    return checked


def check_optional(name: str, value: Any, kind: type, advice: str) -> None:
    """Raises TypeError, with `advice`, for what is neither None nor of this class."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {_shown(value)}: {advice}")


def check_str(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {_shown(value)}")


def _texts(name: str, value: Any, requirement: str) -> list[str]:
    items = list(_iterable(value, requirement))
    for number, text in enumerate(items):
        check_str(f"{name}[{number}]", text)
    return items


def _iterable(value: Any, requirement: str) -> Iterable[Any]:
    if isinstance(value, _NO_LISTS) or not isinstance(value, Iterable):
        raise TypeError(f"{requirement}, not {_shown(value)}")
    return value


def _ordered(value: Any, requirement: str) -> Iterable[Any]:
    if isinstance(value, AbstractSet):
        raise TypeError(f"{requirement}, not {_shown(value)}: a set has no order")
    return _iterable(value, requirement)


def check_count(name: str, items: Sequence[Any], count: int) -> None:
    """Raises ValueError for a list that has not an item for each of `count` lines."""
    if len(items) != count:
        raise ValueError(
            f"{name} has {len(items)} item{'' if len(items) == 1 else 's'} for {count} "
            f"line{'' if count == 1 else 's'}: it needs one per line"
        )


def _has_two(pair: Any) -> bool:
    try:
        return len(pair) == 2
    except TypeError:
        return False


def _target(number: int, target: Any) -> Target:
    if isinstance(target, str):
        return target
    requirement = "a translation must be a str or a sequence of token ids"
    if isinstance(target, (*_NO_LISTS, AbstractSet)) or not isinstance(target, Iterable):
        raise TypeError(f"pair {number}: {requirement}, not {_shown(target)}")
    tokens = list(target)
    for token in tokens:
        try:
            whole_number("a token id", token)
        except TypeError as error:
            raise TargetError(number, f"{requirement}: {error}") from None
    return tokens


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    return f"{type(value).__name__} {reprlib.repr(value)}"
