"""Trains JoeyNMT by its own command, in its environment: `python -m ... CONFIG.json PROGRESS.json`.

The first call learns the joint BPE codes and the vocabulary as its scripts/build_vocab.py does,
which its package lacks. On SIGINT, JoeyNMT saves and ends. What it has done goes to
PROGRESS.json.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from joeynmt import builders
from joeynmt.__main__ import main as joeynmt
from joeynmt.tokenizers import BasicTokenizer
from joeynmt.training import TrainManager
from joeynmt.vocabulary import sort_and_cut
from subword_nmt import apply_bpe, learn_bpe
from torch.optim.lr_scheduler import ReduceLROnPlateau


def main() -> None:
    config_file, progress_file = map(Path, sys.argv[1:])
    data = json.loads(config_file.read_text("utf-8"))["data"]
    if not Path(data["src"]["voc_file"]).exists():
        _learn_vocabulary(data)

    counts = {"steps": 0, "sentences": 0}
    step = TrainManager._train_step

    def counting(manager: Any, batch: Any) -> Any:
        outcome = step(manager, batch)
        counts["sentences"] += batch.nseqs
        counts["steps"] += 1
        return outcome

    TrainManager._train_step = counting
    builders.ReduceLROnPlateau = _Plateau
    sys.argv = ["joeynmt", "train", str(config_file), "--skip-test"]
    joeynmt()
    progress_file.write_text(json.dumps(counts), "utf-8")


class _Plateau(ReduceLROnPlateau):
    """PyTorch's schedule, which no longer takes the `verbose` that JoeyNMT 2.3 passes."""

    def __init__(self, *arguments: Any, verbose: bool = False, **settings: Any) -> None:
        del verbose
        super().__init__(*arguments, **settings)


def _learn_vocabulary(data: dict[str, Any]) -> None:
    """Codes and vocabulary of both sides together."""
    sentences = [
        sentence for side in ("src", "trg") for sentence in _pretokenized(data, data[side])
    ]
    settings = data["src"]["tokenizer_cfg"]
    text = Path(settings["codes"]).with_suffix(".text")
    text.write_text("".join(f"{sentence}\n" for sentence in sentences), "utf-8")
    codes = Path(settings["codes"])
    with text.open(encoding="utf-8") as lines, codes.open("w", encoding="utf-8") as file:
        learn_bpe.learn_bpe(lines, file, settings["num_merges"], 1)
    with codes.open(encoding="utf-8") as file:
        bpe = apply_bpe.BPE(file)
    tokens = Counter(
        token for sentence in sentences for token in bpe.process_line(sentence).split()
    )
    types = sort_and_cut(tokens, sys.maxsize, data["src"]["voc_min_freq"])
    Path(data["src"]["voc_file"]).write_text("".join(f"{token}\n" for token in types), "utf-8")


def _pretokenized(data: dict[str, Any], side: dict[str, Any]) -> list[str]:
    tokenizer = BasicTokenizer(
        level=side["level"],
        lowercase=side["lowercase"],
        normalize=side["normalize"],
        pretokenizer=side["tokenizer_cfg"]["pretokenizer"],
        lang=side["lang"],
    )
    lines = Path(f"{data['train']}.{side['lang']}").read_text("utf-8").split("\n")[:-1]
    return [tokenizer.pre_process(line) for line in lines]


if __name__ == "__main__":
    main()
