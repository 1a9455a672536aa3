"""`export`: a run's model for another program, compared before it is written."""

from collections.abc import Sequence

import flaxformer_mt as fm
from flaxformer_mt.cli.arguments import (
    WORKDIR,
    Flag,
    add_weights,
    flags,
    make_parser,
    positive_number,
    utf8_text,
)
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.interop import FORMATS, QUANTIZATIONS
from flaxformer_mt.rundir.layout import open_run

_NEEDED = WORKDIR | {
    "--format": Flag("target program", choices=FORMATS),
    "--output": Flag("a new folder for the model", takes="DIR"),
}
_WHAT = {
    "--quantization": Flag(
        "ctranslate2, argos, bergamot (float32 and int8): type of the weights; all but float32 "
        "change translations slightly; CTranslate2's int8 may overflow on x86 CPUs without VNNI",
        choices=QUANTIZATIONS,
    ),
    "--sample": Flag(
        "source lines for the comparison (default: from the run's validation text)", takes="FILE"
    ),
    "--bound": Flag(
        "largest allowed difference in a token's natural log-probability (default: by format)",
        takes="X",
        read=positive_number,
    ),
    "--unchecked": Flag("skip the comparison; the other program isn't needed"),
    "--push": Flag(
        "huggingface: upload the folder to this model on the hub (new: public)", takes="ORG/NAME"
    ),
    "--license": Flag(
        "huggingface: license for the model card, such as apache-2.0", takes="NAME", read=utf8_text
    ),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, _NEEDED, required=True)
    add_weights(parser)
    flags(parser, _WHAT, quantization="float32")
    options = parser.parse_args(arguments)
    if options.unchecked and (options.sample is not None or options.bound is not None):
        parser.error("--unchecked skips the comparison: leave out --sample and --bound")
    open_run(options.workdir)  # says what is wrong before JAX is loaded
    keep_programs()
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
