"""`average`: the mean of several checkpoints of a run; what training says of one."""

from __future__ import annotations

from collections.abc import Sequence

from flaxformer_mt.api import config_of, say
from flaxformer_mt.cli.arguments import WORKDIR, flags, make_parser
from flaxformer_mt.rundir.layout import open_run

_WHICH = {
    "--last N:int": "average the N newest regular checkpoints",
    "--best N:int": "average the N best by validation",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, WORKDIR, required=True)
    flags(parser.add_mutually_exclusive_group(), _WHICH)
    options = parser.parse_args(arguments)
    from flaxformer_mt.rundir.checkpoint_choice import average_checkpoints, write_average

    run = open_run(options.workdir)
    if options.best is not None:
        params, steps = average_checkpoints(run, options.best, "best")
    else:
        kept = config_of(run).training.keep_for_average
        count = kept if options.last is None else options.last
        # Of a run that was told to keep none, the newest alone.
        params, steps = average_checkpoints(run, max(1, count), "latest")
    write_average(run, params, steps)
    say(
        f"averaged steps {', '.join(f'{step:,}' for step in steps)}; "
        "translate and evaluate use the mean"
    )
    return 0
