"""`trees`: treebanks to parallel text, a model's output to trees, and scores."""

import contextlib
import dataclasses
import itertools
import os
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from flaxformer_mt.api import say
from flaxformer_mt.bulk.reading import InputError, Lines, open_lines
from flaxformer_mt.cli.arguments import flags, make_parser, print_json
from flaxformer_mt.parsing import linearization
from flaxformer_mt.parsing.evalb import (
    describe_left_out,
    score_sentence,
    scores_json,
    scores_table,
    trees_of_parses,
)
from flaxformer_mt.parsing.linearization import Repairs, counted, flat, normal_form, rebuild
from flaxformer_mt.parsing.trees import Tree, TreeError, read
from flaxformer_mt.rundir.paths import as_path, check_output, write_json, writing

_EPILOG = """linearize writes the two files to train on (--config parsing); translate turns
sentences into linearised trees; rebuild turns those into trees; score compares trees with gold.
Files may be plain, .gz, .xz or .zst; - is standard input. docs/parsing.md has an example."""
_SOURCE = "sentences, one per line, words separated by spaces"
_OUTPUTS = {"--output-src FILE": _SOURCE, "--output-tgt FILE": "linearised trees"}
_LINEARIZE = {
    "trees TREES...": "bracketed trees",
    "--leaves xx|tags|words": "leaf for each word: XX, its part-of-speech tag, or the word itself "
    "(default: xx)",
}
_REBUILD = {
    "src SRC": _SOURCE,
    "predicted PREDICTED": "linearised trees, one per line",
    "--output FILE": "default: standard output",
    "--malformed repair|flat": "repair a malformed tree, or replace it with a flat tree of the "
    "words (default: repair)",
    "--json FILE": "write the counts of repairs to this file",
}
_SCORE = {
    "gold GOLD": "bracketed trees",
    "predicted PREDICTED": "one tree for each; (()) if there is none",
    "--json": "print JSON instead of the table",
    "--output FILE": "also write the JSON to this file",
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
    changes: Counter[str] = Counter()
    count = 0
    with writing(as_path(options.output_src)) as src, writing(as_path(options.output_tgt)) as tgt:
        for name in options.trees:
            for number, tree in _trees(name):
                plain, changed = normal_form(tree)
                changes.update(changed)
                if not plain.words:
                    changes["trees without words left out"] += 1
                    continue
                tokens = linearization.linearize(plain, options.leaves)
                if not _is_rebuilt(plain, tokens, options.leaves):
                    raise TreeError(
                        f"{name}:{number}: can't linearise a label or tag: {' '.join(tokens)!r}"
                    )
                src.write(" ".join(plain.words) + "\n")
                tgt.write(" ".join(tokens) + "\n")
                count += 1
        if not count:
            raise TreeError(f"{', '.join(options.trees)}: no tree contains words")
    say(f"{count:,} trees linearised; each rebuilds exactly from its words and tokens")
    for line in counted(changes):
        say(line)


def _is_rebuilt(tree: Tree, tokens: Sequence[str], leaves: str) -> bool:
    """Whether the tokens give back the tree: a label or tag may be read as something else."""
    rebuilt = rebuild(tree.words, tokens)
    tags = tree.tags if leaves == "tags" else rebuilt.tree.tags
    return not rebuilt.repairs and rebuilt.tree == dataclasses.replace(tree, tags=tags)


def _rebuild(options: Namespace) -> None:
    counts = Repairs()
    with (
        _output(options.output) as write,
        _opened(options.src) as src,
        _opened(options.predicted) as predicted,
    ):
        for sentence, line in itertools.zip_longest(_text(src), _text(predicted)):
            if sentence is None or line is None:
                for _ in itertools.chain(src, predicted):  # counts their lines
                    pass
                raise InputError(
                    f"{src.name} has {src.number:,} lines and {predicted.name} has "
                    f"{predicted.number:,}: each sentence needs one tree"
                )
            words = linearization.tokens_of(sentence)
            rebuilt = rebuild(words, linearization.tokens_of(line))
            counts.add(rebuilt)
            as_flat = rebuilt.repairs and options.malformed == "flat"
            write(f"{flat(words) if as_flat else rebuilt.tree}\n")
    for line in counts.lines():
        say(line)
    if options.json is not None:
        write_json(as_path(options.json), counts.to_json() | {"malformed": options.malformed})


def _score(options: Namespace) -> None:
    # Both are read to the end: only the counts tell whether trees without words were parsed.
    gold = [tree for _, tree in _trees(options.gold)]
    predicted = [tree for _, tree in _trees(options.predicted)]
    if not gold:
        raise TreeError(f"{options.gold}: contains no tree")
    try:
        of_parses = trees_of_parses(gold, len(predicted))
    except TreeError as error:
        raise TreeError(
            f"{options.gold} has {error} and {options.predicted} has {len(predicted):,}: "
            "each sentence needs one tree, or (())"
        ) from error
    if note := describe_left_out(gold, of_parses):
        say(note)
    scores = list(map(score_sentence, of_parses, predicted))
    if options.output is not None:
        write_json(as_path(options.output), scores_json(scores))
    if options.json:
        print_json(scores_json(scores))
    else:
        print(scores_table(scores))


def _trees(path: str) -> Iterator[tuple[int, Tree]]:
    with _opened(path) as lines:
        yield from read(_text(lines), lines.name)


def _text(lines: Lines) -> Iterator[str]:
    for line in lines:
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{lines.name}:{lines.number}: is not UTF-8 text (byte {error.start + 1})"
            ) from error


def _opened(path: str) -> contextlib.AbstractContextManager[Lines]:
    return open_lines(None if path == "-" else path)


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[Callable[[str], object]]:
    if path is None:
        yield lambda text: sys.stdout.buffer.write(text.encode())
    else:
        with writing(as_path(path)) as file:
            yield file.write
