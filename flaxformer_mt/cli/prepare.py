"""`prepare`: corpora to vocabulary and token store, with a report of what was dropped and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flaxformer_mt.cli.arguments import add_config, add_workdir, make_parser, say, take_overrides
from flaxformer_mt.config import load_config, to_dict
from flaxformer_mt.data.prepare import describe, prepare, read_manifest
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.lock import locked


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    rest, overrides = take_overrides(arguments)
    parser = make_parser(prog, purpose)
    add_config(parser, required=True)
    add_workdir(parser)
    options = parser.parse_args(rest)
    config = load_config(options.config, overrides)
    run = RunDirectory(Path(options.workdir))
    if not run.config_file.exists():
        run = layout.create(run.path, to_dict(config), [*prog.split(), *arguments])
    with locked(run):
        prepare(config.data, seed=config.training.seed, directory=run.path, report=say)
    print(describe(read_manifest(run.data)))
    say(f"ready: flaxformer-mt train --config {options.config} --workdir {options.workdir}")
    return 0
