"""Seconds for an HTML page of 2,000 words, by `serve` and by LibreTranslate with the same model.

python -m benchmarks.markup_seconds --workdir DIR --install
python -m benchmarks.markup_seconds --workdir DIR --python PYTHON [--run RUN]

The pages are held-out sentences of the built-in grammar, each a paragraph, with elements around
30% of the words. The model is the demo's, or that of RUN, packed with `export --format argos`. Both
servers run with their defaults but for the size of a request, and get the same pages one after
another, in turns, when they are warm; every page is new to them. A page's text is scored against
the grammar's translations, with its tags and without. Some paragraphs have code with a "<", too.
LibreTranslate splits sentences by spaCy's rules, since its own splitter would be downloaded.

The CPUs' time is recorded as well. Beside other work, whoever waits for all its threads most often
loses most: compare on one core there (`--cores 1`).
"""

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.libretranslate import cpu_seconds, libretranslate, translated, unpacked
from benchmarks.marked_grammar import chosen_phrases, html_text, marked, tagged
from benchmarks.markup import elements_kept
from benchmarks.peer_environments import EnvironmentMissing, Environments
from benchmarks.serving.process import ServerProcess, serving
from flaxformer_mt.evaluation.scoring import corpus_scores
from flaxformer_mt.reproduction.result_file import write_result

WORDS = 2000  # of a page
WARM_UP = 2  # pages
ROUNDS = 5
ESCAPES = 20  # paragraphs with code that has a sign which HTML escapes
SEED = 13
LIMITS = ("--max-characters", "100000", "--max-sentences", "1000", "--timeout", "600")
_PARAGRAPH = re.compile(r"<p>.*?</p>", re.DOTALL)
_BLEU = re.compile("bleu")
_TAG = re.compile("<[^<>]*>")


class Paragraph(NamedTuple):
    html: str
    plain: str  # the same without elements
    reference: str


class Answered(NamedTuple):
    """What a server made of a page, in how many seconds of the clock and of all CPUs."""

    page: str
    seconds: float
    cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.markup_seconds",
        description="Measures serve and LibreTranslate on pages of HTML, with one model.",
    )
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--run", type=Path, metavar="RUN", help="default: the demo model")
    parser.add_argument("--install", action="store_true", help="make LibreTranslate's environment")
    parser.add_argument("--python", type=Path, metavar="PYTHON", help="of an environment with it")
    parser.add_argument("--port", type=int, default=5099, help="LibreTranslate's (%(default)s)")
    parser.add_argument(
        "--cores",
        type=int,
        metavar="N",
        help="both servers share these, with N threads (default: all)",
    )
    parser.add_argument("--note", default="", help="about this machine, for the result")
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    start = time.perf_counter()
    python = _environment(options.workdir, options.install, options.python)
    run = options.run or Path(fm.demo_run(options.workdir / "demo").path)
    package = _package(run, options.workdir / "argos")
    environment = unpacked(package, options.workdir / "home", python)
    if options.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.cores :])
        environment["ARGOS_INTRA_THREADS"] = str(options.cores)
    pages = list(grammar_pages(WARM_UP + ROUNDS))
    log = options.workdir / "libretranslate.log"
    with (
        serving(run, LIMITS) as ours,
        libretranslate(python, environment, log, port=options.port) as theirs,
    ):
        servers = {"": ours, "_libretranslate": theirs}
        answers = in_turns(servers, pages)
        plain = "\n".join(paragraph.plain for paragraph in pages[-1])
        without = {name: translated(server, plain) for name, server in servers.items()}
        escapes = {
            f"well_formed_share_of_escapes{name}": well_formed_escapes(server, pages[-1])
            for name, server in servers.items()
        }
    measured, signature = figures(answers, without, pages[WARM_UP:])
    metrics = {"words_per_page": WORDS, **measured, **escapes}
    print(json.dumps(metrics, indent=2))
    write_result(
        options.result / "markup_seconds.json",
        command="python -m benchmarks.markup_seconds --workdir DIR --install"
        + ("" if options.cores is None else f" --cores {options.cores}"),
        config="demo" if options.run is None else fm.load_config(run).name,
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures=dict.fromkeys(filter(_BLEU.match, metrics), signature),
        details={"note": options.note} if options.note else {},
    )
    return 0


def _environment(folder: Path, install: bool, python: Path | None) -> Path:
    present = {} if python is None else {"libretranslate": python}
    try:
        return Environments(folder, install=install, present=present).python("libretranslate")
    except EnvironmentMissing as error:
        raise SystemExit(f"benchmarks.markup_seconds: {error}") from None


def _package(run: Path, folder: Path) -> Path:
    """The run's package, exported on the first call."""
    if not folder.exists():
        fm.export(run, folder, format="argos")
    (package,) = folder.glob("*.argosmodel")
    return package


def grammar_pages(count: int) -> Iterator[list[Paragraph]]:
    """Pages of WORDS words."""
    rng = Random(SEED)
    page: list[Paragraph] = []
    words = 0
    for sentence in marked("test", count * WORDS):
        html = tagged(sentence, chosen_phrases(sentence, rng))
        page.append(Paragraph(html, f"<p>{html_text(sentence.source)}</p>", sentence.target))
        words += len(sentence.source.split())
        if words >= WORDS:
            yield page
            page, words, count = [], 0, count - 1
        if not count:
            return


def in_turns(
    servers: dict[str, ServerProcess], pages: Sequence[Sequence[Paragraph]]
) -> dict[str, list[Answered]]:
    """Each server's answers to all pages but those that warm it up; who is asked first changes."""
    answers: dict[str, list[Answered]] = {name: [] for name in servers}
    for number, page in enumerate(pages):
        text = "\n".join(paragraph.html for paragraph in page)
        for name in sorted(servers, reverse=number % 2 == 1):
            starts = time.perf_counter(), cpu_seconds(servers[name])
            translation = translated(servers[name], text)
            ends = time.perf_counter(), cpu_seconds(servers[name])
            answered = Answered(translation, ends[0] - starts[0], ends[1] - starts[1])
            print(
                f"page {number + 1}{name}: {answered.seconds:.1f} s, "
                f"{answered.cpu_seconds:.1f} s of CPUs",
                file=sys.stderr,
                flush=True,
            )
            if number >= WARM_UP:
                answers[name].append(answered)
    return answers


def figures(
    answers: dict[str, list[Answered]],
    without: dict[str, str],
    pages: Sequence[Sequence[Paragraph]],
) -> tuple[dict[str, float], str]:
    """Of each server: seconds, tags, and BLEU with tags and of the last page without; and BLEU's
    signature. `""` is ours, whose seconds the ratio divides theirs by."""
    metrics: dict[str, float] = {}
    for name, answered in answers.items():
        metrics[f"seconds_per_page{name}"] = statistics.median(one.seconds for one in answered)
        metrics[f"cpu_seconds_per_page{name}"] = statistics.median(
            one.cpu_seconds for one in answered
        )
    ours, theirs = answers.values()
    metrics["times_as_fast"] = statistics.median(
        other.seconds / one.seconds for one, other in zip(ours, theirs, strict=True)
    )
    for name, answered in answers.items():
        metrics |= {f"{key}{name}": share for key, share in _tags(answered, pages).items()}
        last = [paragraph.reference for paragraph in pages[-1]]
        scores = corpus_scores(_texts(answered[-1].page), last)
        metrics[f"bleu{name}"] = scores.bleu
        metrics[f"bleu_without_tags{name}"] = corpus_scores(_texts(without[name]), last).bleu
    return metrics, scores.signatures[scores.bleu_name]


def well_formed_escapes(server: ServerProcess, page: Sequence[Paragraph]) -> float:
    """The share of well-formed outputs for some paragraphs with a "<" in code, which stays."""
    paragraphs = [
        paragraph.plain.replace("</p>", " <code>a &lt; b</code></p>")
        for paragraph in page[:ESCAPES]
    ]
    outputs = [translated(server, paragraph) for paragraph in paragraphs]
    counts = [elements_kept(*pair) for pair in zip(paragraphs, outputs, strict=True)]
    return 1 - counts.count(None) / len(counts)


def _tags(answered: Sequence[Answered], pages: Sequence[Sequence[Paragraph]]) -> dict[str, float]:
    """The shares of paragraphs that are well-formed, and of tags that are kept."""
    paragraphs = [paragraph for page in pages for paragraph in page]
    outputs = [output for one in answered for output in _PARAGRAPH.findall(one.page)]
    kept_counts = [
        elements_kept(paragraph.html, output)
        for paragraph, output in zip(paragraphs, outputs, strict=True)
    ]
    tags = sum(paragraph.html.count("</") - 1 for paragraph in paragraphs)
    return {
        "well_formed_share": 1 - kept_counts.count(None) / len(kept_counts),
        "tags_kept_share": sum(filter(None, kept_counts)) / tags,
    }


def _texts(page: str) -> list[str]:
    """The text of each paragraph."""
    return [" ".join(_TAG.sub("", part).split()) for part in _PARAGRAPH.findall(page)]


if __name__ == "__main__":
    sys.exit(main())
