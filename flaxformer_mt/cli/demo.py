"""`demo`: the model that comes with the package translates, draws attention and is served."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Sequence

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.cli import attention, serve
from flaxformer_mt.cli.arguments import Flag, flags, make_parser, port, utf8_text
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.errors import install, program

SENTENCES = (
    "Where can I buy a ticket for the train to Berlin?",
    "My sister has forgotten her umbrella again.",
    "We were too tired to cook, so we ordered a pizza.",
    "If it rains tomorrow, we will stay at home.",
)
_WHAT = {
    "--workdir": Flag("run directory for the model", takes="DIR"),
    "--no-serve": Flag("end after the translations and the picture"),
    "--port": Flag("port of the page; 0: any free port", takes="PORT", read=port),
}
_REPEATABLE = {
    "--text": Flag(
        "an English sentence to translate instead of the examples; repeatable",
        takes="TEXT",
        read=utf8_text,
    ),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, _WHAT, workdir="runs/demo", port=8000)
    flags(parser, _REPEATABLE, repeatable=True)
    options = parser.parse_args(arguments)
    if any(map(is_blank, options.text)):
        parser.error("--text is empty: give a sentence")
    sentences = options.text or SENTENCES

    keep_programs()
    run = fm.demo_run(options.workdir)
    translator = fm.Translator.load(run)
    for sentence, translation in zip(sentences, translator.translate(sentences), strict=True):
        print(f"{sentence}\n→ {translation.text}\n", flush=True)

    picture = f"{options.workdir}/attention.html"
    status = attention.main(
        ["--workdir", options.workdir, "--src", sentences[0], "--output", picture], prog, purpose
    )
    if status:
        return status
    say(
        f"{options.workdir} is a run directory like one of your own; try\n"
        f"  echo {shlex.quote(sentences[0])} | {program()} translate --workdir {options.workdir}"
    )
    if options.no_serve:
        return 0
    if importlib.util.find_spec("uvicorn") is None:
        say(f"the page, which translates as you type, is not shown: {install('serve')}")
        return 0
    say("the page, which translates as you type, is at the address below; Ctrl-C stops it")
    return serve.main(["--workdir", options.workdir, "--port", str(options.port)], prog, purpose)
