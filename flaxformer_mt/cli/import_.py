"""`import`: a Hugging Face Marian model as a run directory."""

from collections.abc import Sequence

from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import Flag, flags, make_parser, positive_number
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.interop import BOUND

_NEEDED = {
    "--from": Flag(
        "folder of a Marian model (config.json, weights, vocab.json, source.spm, "
        "target.spm), or ORG/MODEL[@REVISION] on the hub",
        takes="MODEL",
    ),
    "--workdir": Flag("a new run directory", takes="DIR"),
}
_WHAT = {
    "--sample": Flag(
        "source lines for the comparison (default: pieces of the vocabulary)", takes="FILE"
    ),
    "--bound": Flag(
        "largest allowed difference in a token's natural log-probability",
        takes="X",
        read=positive_number,
    ),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, _NEEDED, required=True)
    flags(parser, _WHAT, bound=BOUND)
    options = parser.parse_args(arguments)
    keep_programs()
    from flaxformer_mt.interop.import_run import import_marian

    parity = import_marian(
        getattr(options, "from"),
        options.workdir,
        options.command,
        sample=options.sample,
        bound=options.bound,
        say=say,
    )
    if parity is None:
        say("outputs not compared with the original model: pip install torch transformers")
    else:
        say(f"compared with {parity}")
    say(
        f"{options.workdir}: ready for translate, evaluate and export; to fine-tune it on your "
        f"own text: train --init-from {options.workdir} --workdir NEW --config.data.train..."
    )
    return 0
