"""`export`: a run's model for another program, compared with it before it appears."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import flaxformer_mt as fm
from flaxformer_mt.api import config_of, say
from flaxformer_mt.cli.arguments import WORKDIR, add_weights, flags, make_parser, weights
from flaxformer_mt.interop import FORMATS, QUANTIZATIONS
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.layout import RunDirectory, open_run

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
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, _NEEDED, required=True)
    add_weights(parser)
    flags(parser, _WHAT, quantization="float32")
    options = parser.parse_args(arguments)
    if options.unchecked and (options.sample is not None or options.bound is not None):
        parser.error("--unchecked compares nothing: leave --sample and --bound out")
    from flaxformer_mt.interop.export import Sample, export
    from flaxformer_mt.interop.parity import sample_lines

    run = open_run(options.workdir)
    translator = fm.Translator.load(run.path, which=weights(options.weights, parser))
    sample = None
    if not options.unchecked:
        sample = Sample(*sample_lines(translator.vocabularies, _data(run), options.sample))
    parity = export(
        translator,
        options.output,
        form=options.format,
        quantization=options.quantization,
        languages=config_of(run).data,
        sample=sample,
        bound=options.bound,
    )
    say(f"compared with {parity}" if parity else "the outputs were not compared (--unchecked)")
    say(f"{options.output}: the weights '{translator.name}'; its README.md says how to translate")
    return 0


def _data(run: RunDirectory) -> Path | None:
    """The folder with the validation text, if there is one."""
    try:
        return local_copy(run.data)
    except RunDirectoryError:
        return None
