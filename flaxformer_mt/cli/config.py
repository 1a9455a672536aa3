"""`config`: the resolved configuration, the meaning of every setting, or why a text's sizes."""

import dataclasses
import json
import sys
import typing
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any

from flaxformer_mt.api import say
from flaxformer_mt.api.settings import explained_sizes, sized_config
from flaxformer_mt.cli.arguments import CONFIG, Flag, flags, make_parser, print_json
from flaxformer_mt.config import CorpusConfig, ExperimentConfig, to_dict, to_text, uneven_heads
from flaxformer_mt.config.digest_keys import may_change
from flaxformer_mt.config.freeze import field_types, is_corpora
from flaxformer_mt.errors import nearest


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, overridable=True)
    flags(parser, CONFIG | {"--json": Flag("print JSON")})
    parser.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="GROUP",
        help="explain every setting, or those under GROUP, such as training.schedule; with "
        "--config files and text, the sizes chosen for it",
    )
    options = parser.parse_args(arguments)
    if options.explain is not None:
        explained = list(explanations(ExperimentConfig, ""))
        if options.config is not None:
            explained = list(explained_sizes(options.config, options.overrides, say))
        elif options.overrides:
            parser.error("--explain shows all settings and their defaults: leave out --config.KEY")
        print("\n".join(_of_group(options.explain.removesuffix("."), explained, parser)))
        return 0

    if options.config is None:
        parser.error("--config FILE[:VARIANT] or --explain is needed")
    config = sized_config(options.config, options.overrides)
    if note := uneven_heads(config.model):
        say(note)
    if options.json:
        print_json(to_dict(config))
    else:
        sys.stdout.write(to_text(config))
    return 0


def _of_group(group: str, explained: Sequence[str], parser: ArgumentParser) -> list[str]:
    """The lines of the settings under `group`, or of all; an error if there are none."""
    lines = {line.partition(" ")[0]: line for line in explained}
    prefix = f"{group}." if group else ""
    of_group = [line for key, line in lines.items() if f"{key}.".startswith(prefix)]
    if not of_group:
        groups = {
            ".".join(parts[:depth])
            for parts in (key.split(".") for key in lines)
            for depth in range(1, len(parts))
        }
        parser.error(f"--explain {group}: no such group; {nearest(group, [*groups, *lines])}")
    return of_group


def explanations(cls: Any, prefix: str) -> Iterator[str]:
    """One line per setting: key, default, meaning, and whether a resumed run may change it."""
    for name, hint in field_types(cls).items():
        key = f"{prefix}{name}"
        field = cls.__dataclass_fields__[name]
        if is_corpora(hint):
            yield from explanations(CorpusConfig, f"{key}.NAME.")
        elif dataclasses.is_dataclass(hint):
            yield from explanations(typing.cast(type, hint), f"{key}.")
        else:
            note = "" if may_change(key) else " [fixed once training has started]"
            yield f"{key} = {json.dumps(field.default)}: {field.metadata['help']}{note}"
