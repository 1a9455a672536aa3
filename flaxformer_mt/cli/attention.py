"""`attention`: draws what each head attends to, and finds heads worth drawing."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.attention.page import attention_page
from flaxformer_mt.attention.weights import KINDS, Kind, pick
from flaxformer_mt.cli.arguments import (
    TAG,
    WORKDIR,
    Flag,
    add_decoding,
    as_asked,
    flags,
    make_parser,
    positive,
    print_json,
    utf8_text,
)
from flaxformer_mt.cli.figures import add_size, make_folder, write_drawn
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.canvas import Layout, check_form, require_matplotlib
from flaxformer_mt.figures.drawings import STYLES
from flaxformer_mt.figures.find import (
    AttendedSentence,
    HeadFindings,
    attend,
    described,
    find_heads,
    sentences_of,
    to_json,
    with_translations,
)
from flaxformer_mt.figures.statistics import FAR, pronouns_of
from flaxformer_mt.progress import Meter
from flaxformer_mt.rundir.checkpoint_choice import chosen_weights
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.paths import as_path, check_output, write_json

_EPILOG = """Rows are queries: the pieces that attend; in the decoder, the piece about to be
generated. `-ing` continues a word; ‹end› is the end mark. An HTML file holds all kinds, layers and
heads: --kind, --layer, --head and --query choose what it opens with."""
_OF_PICTURES = ("src", "tgt", "layer", "head", "query")
_OF_FIND = ("input", "target", "draw", "pronouns")
_PICTURE = {
    "--src": Flag(
        "source sentence, as you would give it to `translate`", takes="TEXT", read=utf8_text
    ),
    "--tgt": Flag("its translation (default: the model's own)", takes="TEXT", read=utf8_text),
    "--output": Flag(
        "FILE.png, .svg or .pdf (with the extra `figures`), or an interactive .html; "
        "with --find: FILE.json",
        takes="FILE",
    ),
    "--kind": Flag(
        "encoder self-attention, decoder self-attention, or "
        "decoder-to-source attention (default: cross; with --find: all)",
        choices=KINDS,
    ),
    "--layer": Flag("from 1 (default: the last)", takes="N", read=positive),
    "--head": Flag(
        "from 1 (default: all heads of the layer)", takes="N", several=True, read=positive
    ),
    "--query": Flag(
        "show only the lines of this word, or of the row with this number",
        takes="WORD",
        read=utf8_text,
    ),
    "--style": Flag(
        "lines between pieces, as in the paper's figures 3 to 5, or heat maps",
        choices=("lines", "heat"),
    ),
}
_FIND = {
    "--find": Flag(
        "compute statistics of every head over many sentences, and find the heads that best "
        "show long-distance dependency, anaphora, structure and reordering"
    ),
    "--input": Flag("source lines; plain, .gz, .bz2, .xz or .zst", takes="FILE"),
    "--target": Flag("their translations (default: the model's own)", takes="FILE"),
    "--sentences": Flag("use at most the first N", takes="N", read=positive),
    "--far": Flag("distance that counts as long, in pieces", takes="N", read=positive),
    "--top": Flag("heads to list for each search", takes="N", read=positive),
    "--pronouns": Flag(
        "pronouns of either language (default: built-in lists for en, de and "
        "fr, by the run's languages)",
        takes="WORD",
        several=True,
        read=utf8_text,
    ),
    "--json": Flag("print JSON instead of the table"),
    "--draw": Flag("draw an SVG of each example, with --style and --size", takes="FOLDER"),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, _EPILOG)
    flags(parser, WORKDIR, required=True)
    add_decoding(parser)
    flags(parser, TAG)
    picture = parser.add_argument_group("a picture of one sentence")
    flags(picture, _PICTURE, style="lines")
    add_size(picture)
    search = parser.add_argument_group("search for the heads most worth drawing")
    flags(search, _FIND, far=FAR, top=3, sentences=500)
    options = parser.parse_args(arguments)
    for name in _OF_PICTURES if options.find else _OF_FIND:
        if getattr(options, name) is not None:
            verb = "can't be used with" if options.find else "needs"
            parser.error(f"--{name} {verb} --find")
    if options.find and options.input is None:
        parser.error("--find needs --input FILE")
    if not options.find and (options.src is None or options.output is None):
        parser.error("give --src TEXT and --output FILE, or --find and --input FILE")
    open_run(options.workdir)  # says what is wrong before JAX is loaded
    keep_programs()
    return _find(options) if options.find else draw(options)


def draw(options: Namespace) -> int:
    """Draws one sentence's attention; returns the exit status."""
    form = check_form(options.output, others=("html",))
    check_output(options.output)
    if is_blank(options.src):
        raise FigureError("--src is empty: give a sentence")
    kind: Kind = options.kind or "cross"
    translator = as_asked(options, fm.Translator.load(options.workdir, which=options.weights))
    sentence = AttendedSentence(number=1, src=options.src, tgt=options.tgt or "")
    # A picture of the encoder's attention needs no translation.
    translates = options.tgt is None and (form == "html" or kind != "encoder")
    if translates:
        (sentence,) = with_translations(translator, [sentence])

    attention = attend(translator, sentence)
    picked = pick(
        attention, kind=kind, layer=options.layer, heads=options.head or (), query=options.query
    )
    drawn: Layout | str
    if form == "html":
        drawn = attention_page(
            attention,
            picked,
            src=sentence.src,
            tgt=sentence.tgt,
            origin=f"{options.workdir}, weights: {translator.name}",
            whose="the model's" if options.tgt is None else "given",
        )
    else:
        drawn = STYLES[options.style](picked)
    write_drawn(drawn, options.output, size=options.size)
    if translates:
        say(f"the model's translation: {sentence.tgt}")
    return 0


def _find(options: Namespace) -> int:
    _check_outputs(options)
    sources = read_segments(options.input)
    targets = None if options.target is None else read_segments(options.target)
    chosen = chosen_weights(open_run(options.workdir), options.weights)
    translator = as_asked(options, fm.Translator.load(options.workdir, which=chosen))
    kinds = KINDS if options.kind is None else (options.kind,)
    sentences = sentences_of(
        translator,
        sources,
        targets,
        most=options.sentences,
        translated=set(kinds) != {"encoder"},
        say=lambda note: say(f"{options.input}: {note}"),
    )
    meter = Meter("attention", say, share=lambda done: done / len(sentences), unit="sentences")
    findings = find_heads(
        sentences,
        lambda sentence: attend(translator, sentence),
        kinds=kinds,
        pronouns=_pronouns(options, translator),
        far=options.far,
        top=options.top,
        progress=lambda _: meter.advance(lines=1, size=1),
    )
    content = to_json(findings)
    if options.output is not None:
        write_json(as_path(options.output), content)
        say(options.output)
    if options.json:
        print_json(content)
    else:
        model = ["--workdir", options.workdir, "--weights", str(chosen.checkpoint)]
        model += ["--tag", options.tag] if options.tag else []
        search = translator.config
        decoding = ["--beam-size", str(search.beam_size)]
        if search.length_choice == "given":  # else the run's choice is the default there, too
            decoding += ["--length-penalty", str(search.length_penalty)]
        print(described(findings, model=model, decoding=decoding))
    if options.draw is not None:
        _draw_examples(options, translator, findings)
    return 0


def _check_outputs(options: Namespace) -> None:
    """Raises errors about --output and --draw before anything is computed."""
    if options.output is not None:
        if not options.output.endswith(".json"):
            raise FigureError(f"{options.output}: --find writes JSON: the name must end in .json")
        check_output(options.output)
    if options.draw is not None:
        require_matplotlib()
        check_output(str(make_folder(options.draw) / "any.svg"))


def _draw_examples(options: Namespace, translator: fm.Translator, findings: HeadFindings) -> None:
    folder = as_path(options.draw)
    for head in findings.heads:
        for example in head.examples:
            attention = attend(translator, example.sentence)
            picked = pick(attention, kind=head.kind, layer=head.layer, heads=(head.head,))
            place = f"{head.kind}-layer{head.layer}-head{head.head}-line{example.sentence.number}"
            name = f"{head.search.name.replace(' ', '-')}-{place}.svg"
            write_drawn(STYLES[options.style](picked), str(folder / name), size=options.size)


def _pronouns(
    options: Namespace, translator: fm.Translator
) -> tuple[frozenset[str], frozenset[str]]:
    """The pronouns of source and target."""
    if options.pronouns is not None:
        pronouns = frozenset(word.casefold() for word in options.pronouns)
        return pronouns, pronouns
    src_lang, tgt_lang = translator.src_lang, translator.tgt_lang
    source, target = pronouns_of(src_lang), pronouns_of(tgt_lang)
    for language, pronouns in ((src_lang, source), (tgt_lang, target)):
        if not pronouns:
            say(f"no list of pronouns for {language!r}: `anaphora` needs --pronouns WORD ...")
    return source, target
