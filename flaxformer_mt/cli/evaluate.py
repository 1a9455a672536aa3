"""`evaluate`: test sets translated and scored."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from flaxformer_mt.cli.arguments import add_decoding, add_workdir, make_parser, say, weights
from flaxformer_mt.cli.processes import add_processes, cluster
from flaxformer_mt.config import CorpusConfig, DataConfig, freeze
from flaxformer_mt.data.corpus import CorpusError, read_pairs
from flaxformer_mt.decoding.together import translate_together
from flaxformer_mt.decoding.translator import Translator, chosen_weights
from flaxformer_mt.evaluation.evaluate import Evaluation, check, record
from flaxformer_mt.parallel import Processes, joined
from flaxformer_mt.rundir.layout import open_run, read_record


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    add_workdir(parser)
    add_decoding(parser)
    parser.add_argument(
        "--set", metavar="NAME", help="`valid`, or one of the run's data.test (default: all)"
    )
    parser.add_argument("--src", metavar="FILE", help="score this source file instead, with --ref")
    parser.add_argument("--ref", metavar="FILE", help="its reference translation")
    parser.add_argument("--name", help="what to call it in the run's evaluation folder")
    parser.add_argument(
        "--folder", metavar="DIR", help="where the test files are, if not in data.folder"
    )
    parser.add_argument(
        "--tokenized",
        action="store_true",
        default=None,
        help="the text is tokenised already: BLEU splits at blanks (default: as the run's config)",
    )
    parser.add_argument("--lowercase", action="store_true", help="ignore case")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    add_processes(parser)
    options = parser.parse_args(arguments)
    with joined(cluster(options, parser), heartbeat=options.heartbeat) as processes:
        return evaluate_run(options, parser, processes)


def evaluate_run(
    options: argparse.Namespace, parser: argparse.ArgumentParser, processes: Processes
) -> int:
    """Several processes share the sentences of each set; the first scores and prints."""
    run = open_run(options.workdir)
    data = freeze(read_record(run).config, str(run.config_file)).data
    folder = data.folder if options.folder is None else options.folder
    corpora = _corpora(options, data, parser)
    # Every file is read before anything is translated: a misspelt name should not cost minutes.
    texts = {name: read_whole(corpus, folder, name) for name, corpus in corpora.items()}
    for name, (sources, references) in texts.items():
        check(name, sources, references, run.evaluation)
    which = weights(options.weights, parser)
    if processes.count > 1:
        # The first one's choice: a run that still trains may have another a moment later.
        which = processes.first(lambda: chosen_weights(run, which))
    translator = Translator.load(run.path, which=which)
    results: list[Evaluation] = []
    for name, (sources, references) in texts.items():
        search = {"beam_size": options.beam_size, "length_penalty": options.length_penalty}
        start = time.perf_counter()
        translations = translate_together(translator, sources, processes, **search)
        if not processes.is_first:
            continue
        result = record(
            translator,
            translations,
            references,
            seconds=time.perf_counter() - start,
            name=name,
            directory=run.evaluation,
            **search,
            tokenized=data.tokenized if options.tokenized is None else options.tokenized,
            lowercase=options.lowercase,
        )
        say_result(result, sources)
        results.append(result)
        if not options.json:
            print(f"{name}: {result.scores.one_line()}")
    if options.json and processes.is_first:
        json.dump(
            {r.name: json.loads(r.scores_file.read_text()) for r in results}, sys.stdout, indent=2
        )
        print()
    return 0


def read_whole(corpus: CorpusConfig, folder: str, name: str) -> tuple[list[str], list[str]]:
    """Sources and references of a test set; a defective line is a CorpusError, never left out."""
    pairs = list(read_pairs(corpus, folder, key=f"data.test.{name}"))
    if not pairs:
        raise CorpusError(f"{corpus.src or corpus.path or name}: holds no sentence to score")
    return [pair.src for pair in pairs], [pair.tgt for pair in pairs]


def say_result(result: Evaluation, sources: Sequence[str]) -> None:
    """What the reader of a score should know besides it."""
    for line in result.split_lines:
        say(f"{result.name}:{line}: longer than the model takes; translated in pieces and rejoined")
    for note in result.scores.notes:
        say(f"{result.name}: {note}")
    rate = len(sources) / max(result.seconds, 1e-9)
    say(
        f"{result.name}: {len(sources):,} lines in {result.seconds:.1f} s ({rate:,.0f}/s); "
        f"{result.scores_file}"
    )


def _corpora(
    options: argparse.Namespace, data: DataConfig, parser: argparse.ArgumentParser
) -> dict[str, CorpusConfig]:
    if (options.src is None) != (options.ref is None):
        parser.error("--src and --ref go together")
    if options.src is not None:
        name = options.name or Path(options.src).name.split(".")[0]
        src, ref = (str(Path(path).absolute()) for path in (options.src, options.ref))
        for path in (src, ref):
            if not os.path.exists(path) or os.path.isdir(path):
                parser.error(f"--src and --ref name files; {path} is none")
        return {name: CorpusConfig(name=name, src=src, tgt=ref)}
    named = {corpus.name: corpus for corpus in data.test} | {"valid": data.valid}
    if options.set is not None:
        if options.set not in named:
            parser.error(f"--set {options.set}: this run has {', '.join(named)}")
        return {options.set: named[options.set]}
    if not data.test:
        parser.error(
            "this run's config names no data.test: use --set valid, or --src FILE --ref FILE"
        )
    return {corpus.name: corpus for corpus in data.test}
