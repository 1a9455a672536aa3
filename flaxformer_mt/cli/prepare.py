"""`prepare`: turns corpora into a vocabulary and token store; reports what was dropped and why."""

import functools
from collections.abc import Sequence
from typing import Any

from flaxformer_mt.api import say
from flaxformer_mt.api.preparation import (
    begin_folder,
    planner_of,
    prepared,
    vocabularies_of,
)
from flaxformer_mt.api.settings import continued, created, settled
from flaxformer_mt.cli.arguments import CONFIG, WORKDIR, flags, make_parser
from flaxformer_mt.cluster import workers
from flaxformer_mt.config import to_dict
from flaxformer_mt.config.digest_keys import trains
from flaxformer_mt.data.planner import planned_pass
from flaxformer_mt.data.prepare.manifest import read_manifest
from flaxformer_mt.data.prepare.report import batches_as_text, describe, shapes_table
from flaxformer_mt.errors import program
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.layout import RunDirectory, reopen
from flaxformer_mt.rundir.lock import locked
from flaxformer_mt.rundir.paths import as_path

_CLUSTER = {
    "--engine local|ray": "ray: read and encode on all CPUs of a Ray cluster, whose machines must "
    "reach plain text under the same paths; the result is the same (extra `ray`)",
    "--ray-address HOST:PORT": "the Ray cluster (default: RAY_ADDRESS, else this machine's own)",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, overridable=True)
    flags(parser, WORKDIR, required=True)
    flags(parser, CONFIG)
    flags(parser, {"--inspect": "show the batch shapes and the first ten batches as text"})
    flags(parser, _CLUSTER, engine="local")
    options = parser.parse_args(arguments)
    if options.ray_address and options.engine == "local":
        parser.error("--ray-address needs --engine ray")
    cluster = functools.partial(
        workers, address=options.ray_address, say=say, chips=1, kinds=("CPU",)
    )
    run = RunDirectory(as_path(options.workdir))
    config = settled(run, options.config, options.overrides)
    changed: dict[str, tuple[Any, Any]] = {}
    begin_folder(run, config)
    with locked(run, "preparing its data"):
        if layout.has_record(run):
            config, changed = continued(run, config)
        else:
            config = created(config)
            layout.create(run.path, to_dict(config), options.command)
        spread = cluster if options.engine == "ray" else None
        with prepared(run, config, cluster=spread, thorough=True) as store:
            if changed:
                # The record has the settings of the prepared data, which `train` then uses.
                if trains(changed):
                    reopen(run, "its settings have changed")
                layout.record_start(run, to_dict(config), options.command)
    print(describe(read_manifest(local_copy(run.data))))
    planned_pass(store.valid, config.data.batch)
    if options.inspect:
        vocabularies = vocabularies_of(run)
        planner = planner_of(config, store, vocabularies)
        for text in (shapes_table(planner), *batches_as_text(planner, vocabularies)):
            print(f"\n{text}")
    say(f"ready: {program()} train --workdir {options.workdir}")
    return 0
