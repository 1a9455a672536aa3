"""`average`: averages several checkpoints of a run."""

from collections.abc import Sequence

import flaxformer_mt as fm
from flaxformer_mt.cli.arguments import WORKDIR, Flag, flags, make_parser, positive
from flaxformer_mt.rundir.layout import open_run

_WHICH = {
    "--last": Flag("average the N newest regular checkpoints", takes="N", read=positive),
    "--best": Flag("average the N best checkpoints by validation", takes="N", read=positive),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, WORKDIR, required=True)
    flags(parser.add_mutually_exclusive_group(), _WHICH)
    options = parser.parse_args(arguments)
    open_run(options.workdir)  # says what is wrong before JAX is loaded
    fm.average(options.workdir, last=options.last, best=options.best)
    return 0
