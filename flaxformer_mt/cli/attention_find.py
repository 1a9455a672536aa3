"""`attention --find`: heads worth a picture, over the sentences of a file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from flaxformer_mt.cli.arguments import positive, say
from flaxformer_mt.cli.pictures import drawn, make_folder, write_picture
from flaxformer_mt.cli.searching import as_asked
from flaxformer_mt.config import freeze
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.evaluation_files import read_segments
from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.canvas import require_matplotlib
from flaxformer_mt.figures.find import Found, find_heads
from flaxformer_mt.figures.find_report import highlights, legend, table, to_json
from flaxformer_mt.figures.maps import KINDS, pick
from flaxformer_mt.figures.sentences import attend, sentences_of
from flaxformer_mt.figures.statistics import FAR, pronouns_of
from flaxformer_mt.progress import Meter
from flaxformer_mt.rundir.checkpoint_choice import Chosen, chosen_weights
from flaxformer_mt.rundir.layout import open_run, read_record
from flaxformer_mt.rundir.paths import as_path, write_json


def add_find(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a search for heads worth a picture")
    group.add_argument(
        "--find",
        action="store_true",
        help="statistics of every head over many sentences, and the heads that best show "
        "long-distance dependency, anaphora, structure and reordering",
    )
    group.add_argument("--input", metavar="FILE", help="source lines; plain, .gz, .xz or .zst")
    group.add_argument(
        "--target", metavar="FILE", help="their translations (default: the model's own)"
    )
    group.add_argument(
        "--sentences", type=positive, default=500, metavar="N", help="at most the first N of them"
    )
    group.add_argument(
        "--far", type=positive, default=FAR, metavar="N", help="pieces that are a long distance"
    )
    group.add_argument(
        "--top", type=positive, default=3, metavar="N", help="heads that each search names"
    )
    group.add_argument(
        "--pronouns",
        nargs="+",
        metavar="WORD",
        help="of either language (default: lists for en, de and fr, by the run's languages)",
    )
    group.add_argument("--json", action="store_true", help="print JSON in place of the table")
    group.add_argument(
        "--draw", metavar="FOLDER", help="an SVG of each example, by --style and --size"
    )


def find(options: argparse.Namespace, which: Any) -> int:
    """Searches, prints, and writes what was asked for."""
    if options.output is not None and not options.output.endswith(".json"):
        raise FigureError(f"{options.output}: what --find writes is JSON: end the name in .json")
    if options.draw is not None:
        require_matplotlib()
    sources = read_segments(options.input)
    targets = None if options.target is None else read_segments(options.target)
    chosen = chosen_weights(open_run(options.workdir), which)
    translator = as_asked(options, Translator.load(options.workdir, which=chosen))
    kinds = KINDS if options.kind is None else (options.kind,)
    sentences = sentences_of(
        translator,
        sources,
        targets,
        most=options.sentences,
        translated=set(kinds) != {"encoder"},
    )
    for note in sentences.notes(options.input):
        say(note)
    total = len(sentences.used)
    meter = Meter("attention", say, share=lambda done: done / total, unit="sentences")
    found = find_heads(
        sentences.used,
        lambda sentence: attend(translator, sentence),
        kinds=kinds,
        pronouns=_pronouns(options),
        far=options.far,
        top=options.top,
        progress=lambda _: meter.advance(lines=1, size=1),
    )
    _write(options, found, translator, chosen)
    if options.draw is not None:
        _draw(options, translator, found)
    return 0


def _pronouns(options: argparse.Namespace) -> tuple[frozenset[str], frozenset[str]]:
    """Of the source and of the target."""
    if options.pronouns is not None:
        given = frozenset(word.casefold() for word in options.pronouns)
        return given, given
    run = open_run(options.workdir)
    data = freeze(read_record(run).config, str(run.config_file)).data
    source, target = (pronouns_of(language) for language in (data.src_lang, data.tgt_lang))
    for language, listed in ((data.src_lang, source), (data.tgt_lang, target)):
        if not listed:
            say(f"no list of pronouns for {language!r}: `anaphora` needs --pronouns WORD ...")
    return source, target


def _write(
    options: argparse.Namespace, found: Found, translator: Translator, chosen: Chosen
) -> None:
    content = to_json(found)
    if options.output is not None:
        write_json(as_path(options.output), content)
        say(options.output)
    if options.json:
        json.dump(content, sys.stdout, indent=2, ensure_ascii=False)
        print()
        return
    # As they are now: the run's own may be others tomorrow.
    model = ["--workdir", options.workdir, "--weights", str(chosen.checkpoint)]
    beam_size, length_penalty = translator.config.beam_size, translator.config.length_penalty
    decoding = ["--beam-size", str(beam_size), "--length-penalty", str(length_penalty)]
    text = [table(found), legend(found), highlights(found, model=model, decoding=decoding)]
    print("\n\n".join(text).rstrip())


def _draw(options: argparse.Namespace, translator: Translator, found: Found) -> None:
    """A picture of each example of each head that was found."""
    folder = make_folder(options.draw)
    for head in found.heads:
        for example in head.examples:
            attention = attend(translator, example.sentence)
            picked = pick(attention, kind=head.kind, layer=head.layer, heads=(head.head,))
            layout = drawn(picked, attention, style=options.style)
            place = f"{head.kind}-layer{head.layer}-head{head.head}-line{example.sentence.number}"
            name = f"{head.search.name.replace(' ', '-')}-{place}.svg"
            write_picture(layout, "svg", str(folder / name), wanted=options.size)
