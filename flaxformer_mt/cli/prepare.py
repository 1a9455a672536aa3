"""`prepare`: turns corpora into a vocabulary and token store; reports what was dropped and why."""

from collections.abc import Sequence

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.api.settings import settled
from flaxformer_mt.cli.arguments import CONFIG, WORKDIR, Flag, flags, make_parser
from flaxformer_mt.cluster import Local, Ray
from flaxformer_mt.errors import program
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path

_CLUSTER = {
    "--engine": Flag(
        "ray: read and encode on all CPUs of a Ray cluster, whose machines must "
        "reach plain text under the same paths; the result is the same (extra `ray`)",
        choices=("local", "ray"),
    ),
    "--ray-address": Flag(
        "the Ray cluster (default: RAY_ADDRESS, else this machine's own)", takes="HOST:PORT"
    ),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, overridable=True)
    flags(parser, WORKDIR, required=True)
    flags(parser, CONFIG)
    flags(parser, {"--inspect": Flag("show the batch shapes and the first ten batches as text")})
    flags(parser, _CLUSTER, engine="local")
    options = parser.parse_args(arguments)
    if options.ray_address and options.engine == "local":
        parser.error("--ray-address needs --engine ray")
    engine = Ray(options.ray_address) if options.engine == "ray" else Local()
    config = settled(RunDirectory(as_path(options.workdir)), options.config, options.overrides)
    preparation = fm.prepare(config, options.workdir, engine=engine, command=options.command)
    print(preparation.describe())
    preparation.check_validation()
    if options.inspect:
        for text in preparation.inspect():
            print(f"\n{text}")
    say(f"ready: {program()} train --workdir {options.workdir}")
    return 0
