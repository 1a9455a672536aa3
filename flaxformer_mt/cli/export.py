"""`export`: a run's model for another program, compared before it is written."""

from collections.abc import Sequence

import flaxformer_mt as fm
from flaxformer_mt.cli.arguments import WORKDIR, add_weights, flags, make_parser
from flaxformer_mt.interop import FORMATS, QUANTIZATIONS

_NEEDED = WORKDIR | {
    f"--format {'|'.join(FORMATS)}": "target program",
    "--output DIR": "a new folder for the model",
}
_WHAT = {
    f"--quantization {'|'.join(QUANTIZATIONS)}": "ctranslate2: type of the weights; all but "
    "float32 change translations slightly; int8 may overflow on x86 CPUs without VNNI",
    "--sample FILE": "source lines for the comparison (default: from the run's validation text)",
    "--bound X:float": "largest allowed difference in a token's natural log-probability (default: "
    "by format)",
    "--unchecked": "skip the comparison; the other program isn't needed",
    "--push ORG/NAME": "huggingface: upload the folder to this model on the hub (new: public)",
    "--license NAME": "huggingface: license for the model card, such as apache-2.0",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, _NEEDED, required=True)
    add_weights(parser)
    flags(parser, _WHAT, quantization="float32")
    options = parser.parse_args(arguments)
    if options.unchecked and (options.sample is not None or options.bound is not None):
        parser.error("--unchecked skips the comparison: leave out --sample and --bound")
    fm.export(
        options.workdir,
        options.output,
        format=options.format,
        which=options.weights,
        quantization=options.quantization,
        sample=options.sample,
        bound=options.bound,
        checked=not options.unchecked,
        push=options.push,
        license=options.license or "",
    )
    return 0
