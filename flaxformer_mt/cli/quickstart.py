"""`quickstart`: the whole job on the built-in grammar, in minutes."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.api.settings import SettingsRequest
from flaxformer_mt.cli import average, evaluate, train
from flaxformer_mt.cli.arguments import Flag, flags, make_parser
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.config import DataConfig, read_config
from flaxformer_mt.config.kinds import GrammarText
from flaxformer_mt.errors import UserError, program
from flaxformer_mt.grammar.text import Split, pairs
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path

# From the test split, so that training can't have seen them; not with the seed of the scored ones.
UNSEEN_SEED = 2
UNSEEN = 6


_WHAT = {
    "--workdir": Flag("run directory", takes="DIR"),
    "--write-text": Flag(
        "only write the grammar's sentences to files (train.en, train.de, "
        "valid.en and so on), like text of your own",
        takes="DIR",
    ),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, overridable=True)
    flags(parser, _WHAT, workdir="runs/quickstart")
    options = parser.parse_args(arguments)
    if options.write_text is not None:
        write_text(Path(options.write_text), read_config("quickstart", options.overrides).data)
        return 0
    run = RunDirectory(as_path(options.workdir))
    SettingsRequest(run, "quickstart", options.overrides).check_file()
    keep_programs()
    status = train.train_run(options.workdir, "quickstart", options.overrides, options.command)
    if status:
        return status
    average.main(["--workdir", options.workdir], prog, purpose)
    say("\nscores on held-out sentences, which use words in new constructions:")
    evaluate.main(["--workdir", options.workdir], prog, purpose)

    translator = fm.Translator.load(options.workdir)
    unseen = list(itertools.islice(pairs("test", UNSEEN, seed=UNSEEN_SEED), UNSEEN))
    translations = translator.translate([source for source, _ in unseen])
    print("\nsentences it has never seen:")
    for (source, reference), translation in zip(unseen, translations, strict=True):
        print(f"  {source}\n  → {translation.text}")
        if translation.text != reference:
            print(f"    (correct: {reference})")
    print(
        f"\nThe model is in {options.workdir}. Translate with it:\n"
        f"  echo '{unseen[0][0]}' | {program()} translate --workdir {options.workdir}"
    )
    return 0


def write_text(folder: Path, data: DataConfig) -> None:
    """The built-in corpora of `data` as files SPLIT.LANGUAGE; UserError if one of them exists."""
    sources = [corpus.source for corpus in (*data.train, *data.validation.values(), *data.test)]
    texts = [source for source in sources if isinstance(source, GrammarText)]
    files = [
        [folder / f"{text.split}.{language}" for language in (data.src_lang, data.tgt_lang)]
        for text in texts
    ]
    for path in itertools.chain.from_iterable(files):
        if path.exists():
            raise UserError(f"--write-text: {path} already exists: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for text, (src, tgt) in zip(texts, files, strict=True):
        with src.open("w", encoding="utf-8") as srcs, tgt.open("w", encoding="utf-8") as tgts:
            for source, target in pairs(cast(Split, text.split), text.size):
                srcs.write(f"{source}\n")
                tgts.write(f"{target}\n")
        say(f"{src} and {tgt}: {text.size:,} sentence pairs")
