"""Pictures of attention, and the search for heads worth drawing."""

from __future__ import annotations

from argparse import Namespace

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.attention import KINDS, Kind
from flaxformer_mt.attention.page import attention_page
from flaxformer_mt.attention.weights import pick
from flaxformer_mt.cli.actions.figures import make_folder, write_drawn
from flaxformer_mt.cli.arguments import as_asked, print_json
from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.figures.canvas import Layout, require_matplotlib
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
from flaxformer_mt.figures.statistics import pronouns_of
from flaxformer_mt.progress import Meter
from flaxformer_mt.rundir.checkpoint_choice import chosen_weights
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.paths import as_path, check_output, write_json


def draw(options: Namespace, form: str) -> int:
    """Draws one sentence's attention in the output's `form`; returns the exit status."""
    check_output(options.output)
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


def find(options: Namespace) -> int:
    """Finds the heads most worth drawing; returns the exit status."""
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
