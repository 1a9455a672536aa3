"""`import`: a Marian model, in Hugging Face's form or its own, as a run directory."""

from collections.abc import Sequence

from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import Flag, flags, make_parser, positive_number
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.interop import BOUND

_NEEDED = {
    "--from": Flag(
        "folder of a Marian model (config.json, weights, vocab.json, source.spm, "
        "target.spm; or Marian's own decoder.yml, .npz and .spm), or ORG/MODEL[@REVISION] on the "
        "hub",
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
    from flaxformer_mt.interop.import_npz import decoder_file, import_npz
    from flaxformer_mt.interop.import_run import import_marian

    source = getattr(options, "from")
    if (decoder_yml := decoder_file(source)) is not None:
        if options.sample is not None:
            parser.error("--sample: outputs are compared only with models in Hugging Face's form")
        import_npz(decoder_yml, options.workdir, options.command, say=say)
        say("outputs not compared: Marian's own files are read without another program")
        _say_next(options.workdir)
        return 0
    parity = import_marian(
        source,
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
    _say_next(options.workdir)
    return 0


def _say_next(workdir: str) -> None:
    say(
        f"{workdir}: ready for translate, evaluate and export; to fine-tune it on your "
        f"own text: train --init-from {workdir} --workdir NEW --config.data.train..."
    )
