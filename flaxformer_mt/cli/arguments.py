"""What several commands take: a config with overrides, a run directory."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, get_args

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.config.consistency import LARGEST_BEAM
from flaxformer_mt.config.freeze import field_types
from flaxformer_mt.rundir.paths import is_primary

_OVERRIDE = re.compile(r"--config\.([^=]+)(?:=(.*))?", re.DOTALL)


def make_parser(prog: str, purpose: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=prog, description=purpose, formatter_class=_WithDefaults)


class _WithDefaults(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, but for flags that are not given and values that are worked out later."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, "") or action.default == []:
            return action.help
        return super()._get_help_string(action)


def add_config(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--config",
        required=required,
        metavar="FILE[:VARIANT]",
        help="config file, or the name of a built-in one; --config.a.b=VALUE overrides a setting",
    )


def add_workdir(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--workdir",
        required=required,
        metavar="DIR",
        help="run directory, local or gs://BUCKET/FOLDER",
    )


def take_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without `--config.KEY=VALUE` (or `--config.KEY VALUE`), and those of it."""
    rest: list[str] = []
    overrides: list[str] = []
    words = iter(arguments)
    for word in words:
        match = _OVERRIDE.fullmatch(word)
        if match is None:
            rest.append(word)
        elif match[2] is not None:
            overrides.append(f"{match[1]}={match[2]}")
        else:
            value = next(words, None)
            overrides.append(match[1] if value is None else f"{match[1]}={value}")
    return rest, overrides


def say(text: str) -> None:
    """A line for people, from the first of several processes; standard output is for results."""
    if is_primary():
        print(text, file=sys.stderr, flush=True)


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def add_weights(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--weights",
        default="auto",
        metavar="WHICH",
        help="average, best, latest, a step, or auto: a current average, else best, else latest",
    )


def add_decoding(parser: argparse.ArgumentParser) -> None:
    add_weights(parser)
    add_settings(parser, "beam_size", "length_penalty", note=" (default: the run's decoding.{})")


def add_settings(parser: argparse._ActionsContainer, *names: str, note: str = "") -> None:
    """A flag for each of these settings under `decoding`, with the schema's explanation.

    `note` is added to it, with the setting's name for `{}`.
    """
    hints = field_types(DecodingConfig)
    for name in names:
        field = DecodingConfig.__dataclass_fields__[name]
        form: dict[str, Any] = {"choices": get_args(hints[name])}
        if hints[name] is float:
            form = {"type": not_negative, "metavar": "X"}
        elif hints[name] is int:
            numbers = {"beam_size": _beam, "no_repeat_ngram": count}
            form = {"type": numbers.get(name, positive), "metavar": "N"}
        explanation = f"{field.metadata['help']}{note.format(name)}".replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", help=explanation, **form)


def positive(text: str) -> int:
    """An argument that counts something."""
    return integer(text, least=1)


def count(text: str) -> int:
    """An argument that is a number from 0 on."""
    return integer(text, least=0)


def integer(text: str, *, least: int) -> int:
    """An argument that is an integer of at most nine digits."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer from {least} to 999,999,999")
    return int(text)


def _beam(text: str) -> int:
    """An argument that is a beam size."""
    if (value := positive(text)) > LARGEST_BEAM:
        raise argparse.ArgumentTypeError(
            f"{text!r} is more than {LARGEST_BEAM:,}, the largest beam"
        )
    return value


def not_negative(text: str) -> float:
    """An argument that is a finite number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number of at least 0")
    return value


def positive_number(text: str) -> float:
    """An argument that is a finite number above 0."""
    value = not_negative(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def weights(text: str, parser: argparse.ArgumentParser) -> Any:
    """`--weights` as `Translator.load` takes it."""
    if text in ("auto", "average", "best", "latest"):
        return text
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    parser.error(f"--weights {text}: write average, best, latest, auto, or a step's number")
