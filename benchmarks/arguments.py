"""Arguments that benchmarks share: numbers, and settings as `train` takes them."""

import argparse
import re
from collections.abc import Sequence

SETTINGS_HELP = "--config.KEY=VALUE changes a setting, as in `train`"
_SETTING = re.compile(r"--config\.([^=]+)=(.*)", re.DOTALL)


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer ≥ 1")
    return int(text)


def parse_with_settings(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> tuple[argparse.Namespace, dict[str, str]]:
    """The parsed arguments, and the settings of `--config.KEY=VALUE` by their dotted names."""
    options, others = parser.parse_known_args(arguments)
    settings: dict[str, str] = {}
    for word in others:
        match = _SETTING.fullmatch(word)
        if match is None:
            parser.error(f"unrecognized argument: {word} (settings are --config.KEY=VALUE)")
        settings[match[1]] = match[2]
    return options, settings
