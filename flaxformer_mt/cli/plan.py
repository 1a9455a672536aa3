"""`plan`: what a step takes on accelerators you don't have. Compiles; runs nothing."""

from collections.abc import Sequence
from dataclasses import fields

from flaxformer_mt.api import say
from flaxformer_mt.api.settings import sized_config
from flaxformer_mt.cli.arguments import (
    CONFIG,
    Flag,
    flags,
    lengths,
    make_parser,
    positive,
    positive_number,
    print_json,
)
from flaxformer_mt.planning import set_for_compiler
from flaxformer_mt.rundir.paths import check_output

_NEEDED = CONFIG | {"--topology": Flag("such as v5e:2x4, v5p:2x2x1, h100 or h100:8", takes="NAME")}
_REPORT = {
    "--slices": Flag("number of TPU slices", takes="N", read=positive),
    "--workdir": Flag(
        "run to take vocabulary sizes and batch shapes from (default: the config)", takes="DIR"
    ),
    "--lengths": Flag(
        "positions per row (default: the longest, which need the most "
        "memory); with --decode, of a source and its output",
        takes="SRC,TGT",
        read=lengths,
    ),
    "--price-per-chip-hour": Flag(
        "also show what the run would cost", takes="X", read=positive_number
    ),
    "--json": Flag("print JSON"),
    "--save-hlo": Flag("write the compiled step's HLO text", takes="FILE"),
}
_INSTEAD = {
    "--shardings": Flag("show how parameters are sharded; compiles nothing"),
    "--fit": Flag(
        "find what makes the batch fit (remat, accumulation) and the largest batch that fits"
    ),
    "--decode": Flag("plan beam search on one device instead"),
}
_UNUSED = {
    "--shardings": ("lengths", "price_per_chip_hour", "save_hlo"),
    "--fit": ("save_hlo",),
    "--decode": ("price_per_chip_hour", "save_hlo"),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, overridable=True)
    flags(parser, _NEEDED, required=True)
    flags(parser, _REPORT, slices=1)
    flags(parser.add_mutually_exclusive_group(), _INSTEAD)
    options = parser.parse_args(arguments)
    for flag, names in _UNUSED.items():
        for name in names:
            if getattr(options, flag[2:]) and getattr(options, name) is not None:
                parser.error(f"--{name.replace('_', '-')} has no effect on {flag}: leave it out")
    if options.save_hlo is not None:
        check_output(options.save_hlo)
    config = sized_config(options.config, options.overrides, paced=False)
    set_for_compiler()  # the import below is JAX's first
    from flaxformer_mt.planning import report

    request = report.Request(
        **{field.name: getattr(options, field.name) for field in fields(report.Request)}
    )
    if options.shardings:
        answer = report.report_shardings(config, request, say)
    elif options.fit:
        answer = report.report_fit(config, request, say)
    elif options.decode:
        answer = report.report_decoding(config, request, say)
    else:
        answer = report.report_step(config, request, say)
    if options.json:
        print_json(answer.values)
    else:
        print(answer.text)
    return 0 if answer.fits else 1
