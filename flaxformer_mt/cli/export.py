"""`export`: a run's model for another program, compared with it before it appears."""

from collections.abc import Sequence

import flaxformer_mt as fm
from flaxformer_mt.cli.arguments import WORKDIR, add_weights, flags, make_parser, weights
from flaxformer_mt.interop import FORMATS, QUANTIZATIONS

_NEEDED = WORKDIR | {
    f"--format {'|'.join(FORMATS)}": "the program to write for",
    "--output DIR": "a new folder for the model",
}
_WHAT = {
    f"--quantization {'|'.join(QUANTIZATIONS)}": "how ctranslate2 keeps weights; all but float32 "
    "change translations a little; int8 may go wrong on x86 CPUs without VNNI, int7 does not",
    "--sample FILE": "source lines to compare on (default: from the run's validation text)",
    "--bound X:float": "largest difference of a token's natural log-probability that passes "
    "(default: by format)",
    "--unchecked": "compare nothing: the other program is not needed",
    "--push ORG/NAME": "huggingface: upload the folder to this model on the hub, which becomes a "
    "public one if it isn't there",
    "--license NAME": "huggingface: license for the model card, such as apache-2.0",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, _NEEDED, required=True)
    add_weights(parser)
    flags(parser, _WHAT, quantization="float32")
    options = parser.parse_args(arguments)
    if options.unchecked and (options.sample is not None or options.bound is not None):
        parser.error("--unchecked compares nothing: leave --sample and --bound out")
    fm.export(
        options.workdir,
        options.output,
        format=options.format,
        which=weights(options.weights, parser),
        quantization=options.quantization,
        sample=options.sample,
        bound=options.bound,
        checked=not options.unchecked,
        push=options.push,
        license=options.license or "",
    )
    return 0
