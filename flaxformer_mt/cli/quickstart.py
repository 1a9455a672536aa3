"""`quickstart`: the whole job on the built-in grammar, in minutes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from flaxformer_mt.cli import average, evaluate, train
from flaxformer_mt.cli.arguments import make_parser, say, take_overrides
from flaxformer_mt.data.synthetic import pairs
from flaxformer_mt.decoding.translator import Translator

# Of the test split, so that training cannot have seen them; not the seed of those it is scored on.
UNSEEN_SEED = 2
UNSEEN = 6


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    rest, overrides = take_overrides(arguments)
    parser = make_parser(prog, purpose)
    parser.add_argument("--workdir", default="runs/quickstart", metavar="DIR", help="run directory")
    options = parser.parse_args(rest)
    command = [*prog.split(), *arguments]
    status = train.train_run(options.workdir, "quickstart", overrides, command)
    if status:
        return status
    average.main(["--workdir", options.workdir], prog, purpose)
    say("\nscores on held-out sentences, whose words and constructions never met in training:")
    evaluate.main(["--workdir", options.workdir], prog, purpose)

    translator = Translator.load(options.workdir)
    unseen = list(itertools.islice(pairs("test", UNSEEN, seed=UNSEEN_SEED), UNSEEN))
    translations = translator.translate([source for source, _ in unseen])
    print("\nsentences it has never seen:")
    for (source, reference), translation in zip(unseen, translations, strict=True):
        print(f"  {source}\n  → {translation.text}")
        if translation.text != reference:
            print(f"    (right: {reference})")
    print(
        f"\nThe model is in {options.workdir}. Translate with it:\n"
        f"  echo '{unseen[0][0]}' | launch/local.sh translate --workdir {options.workdir}"
    )
    return 0
