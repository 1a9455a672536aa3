"""A process that translates a corpus's dev and test sets with a run of ours.

    python -m benchmarks.own_data.translations RUN TEXT_FOLDER SRC TGT OUT_FOLDER [--choose]

With `--choose`, for runs that the study has stopped, the weights are the newest, the best by
validation or the average of the last checkpoints, whichever has the highest dev BLEU; without, they
are those that `translate` would use. Both search as validation chose (`decoding.length_choice`).
"""

import argparse
import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks.own_data.scoring import dev_bleu
from flaxformer_mt.api import config_of
from flaxformer_mt.api.length import choose_length
from flaxformer_mt.rundir import CheckpointError
from flaxformer_mt.rundir.layout import RunDirectory, open_run
from flaxformer_mt.rundir.paths import exists, write_json

AVERAGED = 5  # checkpoints


@dataclasses.dataclass(frozen=True)
class _Candidate:
    name: str
    outputs: list[str]
    translator: fm.Translator


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_data.translations")
    parser.add_argument("run")
    parser.add_argument("text", type=Path)
    parser.add_argument("src")
    parser.add_argument("tgt")
    parser.add_argument("out", type=Path)
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args(arguments)

    run = open_run(options.run)
    sources = {split: _lines(options.text / f"{split}.{options.src}") for split in ("dev", "test")}
    references = _lines(options.text / f"dev.{options.tgt}")
    chosen = _chosen(run, sources["dev"], references, choose=options.choose)
    outputs = {"dev": chosen.outputs, "test": _translated(chosen.translator, sources["test"])}
    for split, lines in outputs.items():
        text = "".join(f"{line}\n" for line in lines)
        (options.out / f"{split}.hyp").write_text(text, "utf-8")
    write_json(options.out / "weights.json", {"weights": chosen.name})
    return 0


def _chosen(
    run: RunDirectory, sources: Sequence[str], references: Sequence[str], *, choose: bool
) -> _Candidate:
    """The weights to use. A length choice is made for runs that were stopped before theirs."""
    if choose:
        shutil.rmtree(run.checkpoints / "average", ignore_errors=True)
    if choose or not exists(run.length_choice):
        choose_length(run, config_of(run))
    if not choose:
        return _candidate(run, "auto", sources)

    candidates = [_candidate(run, "latest", sources)]
    for make in (lambda: "best", lambda: _averaged(run)):
        try:
            candidates.append(_candidate(run, make(), sources))
        except CheckpointError as error:  # too few checkpoints, or none was validated
            print(error, file=sys.stderr)
    return max(candidates, key=lambda candidate: dev_bleu(candidate.outputs, references))


def _candidate(run: RunDirectory, which: str, sources: Sequence[str]) -> _Candidate:
    translator = fm.Translator.load(run.path, which=which)  # type: ignore[arg-type]
    return _Candidate(translator.name, _translated(translator, sources), translator)


def _averaged(run: RunDirectory) -> str:
    """Averages the last checkpoints. Raises CheckpointError for too few."""
    fm.average(run.path, last=AVERAGED)
    return "average"


def _translated(translator: fm.Translator, lines: Sequence[str]) -> list[str]:
    return [line.text for line in translator.translate_lines(lines, warn=False)]


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


if __name__ == "__main__":
    sys.exit(main())
