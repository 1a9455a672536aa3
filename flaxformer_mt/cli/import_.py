"""`import`: a run directory of a Hugging Face Marian model."""

from collections.abc import Sequence

from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import flags, make_parser
from flaxformer_mt.interop import BOUND

_NEEDED = {
    "--from MODEL": "folder of a Marian model: config.json, weights, vocab.json, source.spm, "
    "target.spm; where there is no such folder, ORG/MODEL or ORG/MODEL@REVISION on the hub",
    "--workdir DIR": "a new run directory",
}
_WHAT = {
    "--sample FILE": "source lines to compare both models on (default: pieces of the vocabulary)",
    "--bound X:float": "largest difference of a token's natural log-probability that passes",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, _NEEDED, required=True)
    flags(parser, _WHAT, bound=BOUND)
    options = parser.parse_args(arguments)
    from flaxformer_mt.interop.import_run import import_marian

    parity = import_marian(
        getattr(options, "from"),
        options.workdir,
        [*prog.rsplit(" ", 1), *arguments],
        sample=options.sample,
        bound=options.bound,
        report=say,
    )
    if parity is None:
        say(
            "the outputs were not compared with the model's own program: that needs PyTorch and "
            "transformers (pip install torch transformers)"
        )
    else:
        say(f"compared with {parity}")
    say(
        f"{options.workdir}: translate, evaluate and export take it; to train it further on your "
        f"own text: train --init-from {options.workdir} --workdir NEW --config.data.train..."
    )
    return 0
