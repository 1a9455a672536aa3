"""`serve`: an HTTP API and a web page over a run directory's model."""

from __future__ import annotations

import argparse
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from flaxformer_mt.cli.arguments import (
    DTYPE,
    SHORTLIST,
    WORKDIR,
    Flag,
    add_decoding,
    flags,
    integer,
    make_parser,
    port,
    positive_number,
    utf8_text,
)
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.cli.runtime import RUNTIME, check_runtime
from flaxformer_mt.errors import UserError, install
from flaxformer_mt.files.reading import read_text
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.serving.settings import Log, ServerSettings, flags as limits, read_keys


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    options = _parser(prog, purpose).parse_args(arguments)
    for package in ("httptools", "prometheus_client", "pydantic", "starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"{package} is not installed: {install('serve')}")
    settings = _settings(options)
    open_run(options.workdir)  # says what is wrong before JAX is loaded
    check_runtime(options)
    keep_programs()
    from flaxformer_mt.cli.actions.serve import serve

    return serve(options, settings)


def _settings(options: argparse.Namespace) -> ServerSettings:
    """Raises UserError for files that can't be read, and SettingsError."""
    keys: frozenset[str] = frozenset()
    if options.api_keys:
        keys = read_keys(read_text(Path(options.api_keys), UserError), options.api_keys)
    examples = read_text(Path(options.examples), UserError) if options.examples else ""
    return ServerSettings(
        **{name: getattr(options, name) for name in limits()},
        keys=keys,
        cors_origins=tuple(options.cors),
        allowed_hosts=tuple(options.allowed_host),
        keep=not options.no_keep,
        # Other programs' searches have none.
        constraints=not options.no_constraints and options.runtime == "jax",
        public_address=options.public_address or "",
        examples=tuple(filter(None, map(str.strip, examples.split("\n")))),
        log=options.log,
    )


_WHAT = {
    "--host": Flag("address to listen on; 0.0.0.0: all addresses", takes="HOST"),
    "--port": Flag("port to listen on; 0: any free port", takes="PORT", read=port),
    "--api-keys": Flag(
        "accept only requests with a key from this file, one per line", takes="FILE"
    ),
    **DTYPE,
    **SHORTLIST,
    **RUNTIME,
    "--no-keep": Flag(
        "translate URLs, e-mail addresses, placeholders and emoji as other text, unless a request "
        "sets `keep` (default: they stay as they are)"
    ),
    "--no-constraints": Flag("refuse `terms` and `forbid`, and compile nothing for them"),
    "--public-address": Flag(
        "where clients reach the server, for the addresses of translated files, such as "
        "https://example.org/translate (default: the Host that they ask for)",
        takes="URL",
        read=utf8_text,
    ),
    "--examples": Flag("example texts for the page, one per line", takes="FILE"),
    "--log": Flag(
        "log one line per request; `text` also logs the translated text", choices=get_args(Log)
    ),
}
_REPEATABLE = {
    "--cors": Flag(
        "let web pages from this origin use the API, such as https://example.org; repeatable",
        takes="ORIGIN",
        read=utf8_text,
    ),
    "--allowed-host": Flag(
        "host name to answer to besides localhost and IP addresses, such as "
        "translate.example.org; repeatable",
        takes="NAME",
        read=utf8_text,
    ),
}


def _parser(prog: str, purpose: str) -> argparse.ArgumentParser:
    parser = make_parser(prog, purpose)
    flags(parser, WORKDIR, required=True)
    add_decoding(parser)
    flags(parser, _WHAT, host="127.0.0.1", port=8000, log=ServerSettings.log, runtime="jax")
    flags(parser, _REPEATABLE, repeatable=True)
    groups: dict[str, argparse._ArgumentGroup] = {}
    for name, option in limits().items():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        default = getattr(ServerSettings, name)
        integer_type = functools.partial(integer, least=option.least)
        groups[option.group].add_argument(
            option.flag,
            dest=name,
            type=positive_number if isinstance(default, float) else integer_type,
            default=default,
            metavar=option.metavar,
            help=option.help,
        )
    return parser
