"""`trees`: treebanks to parallel text, a model's output to trees, and scores."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from flaxformer_mt.api import say
from flaxformer_mt.api.trees import linearize_files, rebuild_file, score_files
from flaxformer_mt.cli.arguments import Flag, flags, make_parser, print_json
from flaxformer_mt.parsing.evalb import scores_json, scores_table
from flaxformer_mt.parsing.linearization import counted
from flaxformer_mt.rundir.paths import as_path, check_output, write_json

_EPILOG = """linearize writes the two files to train on (--config parsing); translate turns
sentences into linearised trees; rebuild turns those into trees; score compares trees with gold.
Files may be plain, .gz, .bz2, .xz or .zst; - is standard input. docs/parsing.md has an example."""
_SOURCE = "sentences, one per line, words separated by spaces"
_OUTPUTS = {
    "--output-src": Flag(_SOURCE, takes="FILE"),
    "--output-tgt": Flag("linearised trees", takes="FILE"),
}
_LINEARIZE = {
    "trees": Flag("bracketed trees", takes="TREES", several=True),
    "--leaves": Flag(
        "leaf for each word: XX, its part-of-speech tag, or the word itself (default: xx)",
        choices=("xx", "tags", "words"),
    ),
}
_REBUILD = {
    "src": Flag(_SOURCE, takes="SRC"),
    "predicted": Flag("linearised trees, one per line", takes="PREDICTED"),
    "--output": Flag("default: standard output", takes="FILE"),
    "--malformed": Flag(
        "repair a malformed tree, or replace it with a flat tree of the words (default: repair)",
        choices=("repair", "flat"),
    ),
    "--json": Flag("write the counts of repairs to this file", takes="FILE"),
}
_SCORE = {
    "gold": Flag("bracketed trees", takes="GOLD"),
    "predicted": Flag("one tree for each; (()) if there is none", takes="PREDICTED"),
    "--json": Flag("print JSON instead of the table"),
    "--output": Flag("also write the JSON to this file", takes="FILE"),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, _EPILOG)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    linearizing = actions.add_parser("linearize", help="turn treebanks into source and target text")
    flags(linearizing, _LINEARIZE, leaves="xx")
    flags(linearizing, _OUTPUTS, required=True)
    rebuilding = actions.add_parser("rebuild", help="turn linearised trees into trees")
    flags(rebuilding, _REBUILD, malformed="repair")
    flags(actions.add_parser("score", help="compute EVALB's labelled bracket scores"), _SCORE)
    options = parser.parse_args(arguments)
    _check_files(options, parser)
    {"linearize": _linearize, "rebuild": _rebuild, "score": _score}[options.action](options)
    return 0


def _check_files(options: Namespace, parser: ArgumentParser) -> None:
    """No output may be another output or an input, which would be lost."""
    flags = vars(options)
    inputs = [*flags.get("trees", ()), *(flags.get(name) for name in ("src", "gold", "predicted"))]
    if inputs.count("-") > 1:
        parser.error("standard input (-) can be only one file")
    files = {os.path.realpath(path) for path in inputs if path}
    for name in ("output_src", "output_tgt", "output", "json"):
        path = flags.get(name)
        if not isinstance(path, str):
            continue
        if os.path.realpath(path) in files:
            parser.error(f"{path}: named twice; each output needs its own file")
        check_output(path)
        files.add(os.path.realpath(path))


def _linearize(options: Namespace) -> None:
    linearized = linearize_files(
        options.trees, src=options.output_src, tgt=options.output_tgt, leaves=options.leaves
    )
    say(f"{linearized.trees:,} trees linearised; each rebuilds exactly from its words and tokens")
    for line in counted(linearized.changes):
        say(line)


def _rebuild(options: Namespace) -> None:
    repairs = rebuild_file(
        options.src, options.predicted, options.output, malformed=options.malformed
    )
    for line in repairs.lines():
        say(line)
    if options.json is not None:
        write_json(as_path(options.json), repairs.to_json() | {"malformed": options.malformed})


def _score(options: Namespace) -> None:
    scores = score_files(options.gold, options.predicted)
    if options.output is not None:
        write_json(as_path(options.output), scores_json(scores))
    if options.json:
        print_json(scores_json(scores))
    else:
        print(scores_table(scores))
