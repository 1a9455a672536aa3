"""Arguments shared by commands: a config with overrides, a run directory, numbers, weights."""

import argparse
import difflib
import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, get_args

from flaxformer_mt.config import DecodingConfig, ExperimentConfig, flatten
from flaxformer_mt.config.consistency import LARGEST_BEAM
from flaxformer_mt.config.freeze import field_types

_OVERRIDE = re.compile(r"--config\.([^=]+)(?:=(.*))?", re.DOTALL)


CONFIG = {
    "--config FILE[:VARIANT]": "config file, or the name of a built-in one; --config.a.b=VALUE "
    "overrides a setting",
}
WORKDIR = {"--workdir DIR": "run directory, local or gs://BUCKET/FOLDER"}


def make_parser(prog: str, purpose: str, epilog: str = "") -> argparse.ArgumentParser:
    return _Parser(prog=prog, description=purpose, epilog=epilog, formatter_class=_WithDefaults)


class _Parser(argparse.ArgumentParser):
    """Says of a misspelt flag which one may be meant, or which setting."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = [*args]
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        known, hints = self._option_string_actions, []
        given = {word.partition("=")[0] for word in self._words if word.startswith("--")}
        for flag in sorted(flag for flag in given if not any(k.startswith(flag) for k in known)):
            settings = [key for key in flatten(ExperimentConfig()) if "--config" in known]
            meant = flag.strip("-").replace("-", "_")
            same = [f"--config.{key}" for key in settings if key.rpartition(".")[2] == meant]
            section, dot, _ = meant.partition(".")
            if dot and any(key.startswith(f"{section}.") for key in settings):
                same = [f"--config.{meant}"]
            close = same or difflib.get_close_matches(flag, known, n=1, cutoff=0.5)
            hints += [f"{flag}: did you mean {close[0]}?"] if close else []
        super().error("; ".join([message, *hints]))


class _WithDefaults(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, but for flags that are not given and values that are worked out later."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, "") or action.default == []:
            return action.help
        return super()._get_help_string(action)


def flags(
    parser: argparse._ActionsContainer,
    table: Mapping[str, str],
    *,
    required: bool = False,
    repeatable: bool = False,
    **defaults: Any,
) -> None:
    """Adds the arguments of a table: how each is written in a call, and its help.

    "--json" is a switch, "--input FILE" takes a text, "--format text|tsv" one of these words,
    "--only ROW..." one text or more, and "--valid SRC TGT" two. "N:int" is an integer of at least
    1 and "X:float" a number above 0, shown as N and X. `repeatable` ones are gathered in a list.
    """
    for form, help in table.items():
        more: dict[str, Any] = {"required": True} if required else {}
        for ending, read in ((":int", positive), (":float", positive_number)):
            if ending in form:
                form, more["type"] = form.replace(ending, ""), read
        name, *words = form.split()
        if not words:
            more["action"] = "store_true"
        elif "|" in form:
            more["choices"] = words[0].split("|")
        elif form.endswith("..."):
            more |= {"nargs": "+", "metavar": words[0].removesuffix("...")}
        elif len(words) > 1:
            more |= {"nargs": len(words), "metavar": tuple(words)}
        else:
            more["metavar"] = words[0]
        if repeatable:
            more |= {"action": "append", "default": []}
        parser.add_argument(name, help=help, **more)
    parser.set_defaults(**defaults)


def take_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without `--config.KEY=VALUE` (or `--config.KEY VALUE`), and those of it."""
    rest: list[str] = []
    overrides: list[str] = []
    words = iter(arguments)
    for word in words:
        match = _OVERRIDE.fullmatch(word)
        if match is None:
            rest.append(word)
        else:
            value = next(words, None) if match[2] is None else match[2]
            overrides.append(match[1] if value is None else f"{match[1]}={value}")
    return rest, overrides


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def add_weights(parser: argparse.ArgumentParser) -> None:
    explained = "average, best, latest, a step, or auto: a current average, else best, else latest"
    flags(parser, {"--weights WHICH": explained}, weights="auto")


def weights(text: str, parser: argparse.ArgumentParser) -> Any:
    """`--weights` as `Translator.load` takes it."""
    if text in ("auto", "average", "best", "latest"):
        return text
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    parser.error(f"--weights {text}: write average, best, latest, auto, or a step's number")


def add_decoding(parser: argparse.ArgumentParser) -> None:
    add_weights(parser)
    add_settings(parser, "beam_size", "length_penalty", note=" (default: the run's decoding.{})")


def add_settings(parser: argparse._ActionsContainer, *names: str, note: str = "") -> None:
    """A flag for each of these settings under `decoding`, with the schema's explanation.

    `note` is added to it, with the setting's name for `{}`.
    """
    hints = field_types(DecodingConfig)
    numbers = {"beam_size": beam_size, "no_repeat_ngram": count}
    for name in names:
        form: dict[str, Any] = {"choices": get_args(hints[name])}
        if hints[name] is float:
            form = {"type": not_negative, "metavar": "X"}
        elif hints[name] is int:
            form = {"type": numbers.get(name, positive), "metavar": "N"}
        field = DecodingConfig.__dataclass_fields__[name]
        explained = f"{field.metadata['help']}{note.format(name)}".replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", help=explained, **form)


def integer(text: str, *, least: int, most: int = 999_999_999) -> int:
    """An argument that is an integer of at most nine digits."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer from {least} to {most:,}")
    return int(text)


positive = functools.partial(integer, least=1)
count = functools.partial(integer, least=0)
beam_size = functools.partial(integer, least=1, most=LARGEST_BEAM)


def not_negative(text: str) -> float:
    """An argument that is a finite number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be a finite number ≥ 0")
    return value


def positive_number(text: str) -> float:
    """An argument that is a finite number above 0."""
    value = not_negative(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number > 0")
    return value
