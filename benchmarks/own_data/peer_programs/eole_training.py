"""Trains eole by its own commands, in its environment: `python -m ... CONFIG.json PROGRESS.json`.

The first call learns the recipe's SentencePiece model and builds the vocabulary. SIGINT ends the
training data, whereupon eole saves; by itself it would stop without. What it has done goes to
PROGRESS.json.
"""

import json
import signal
import sys
import warnings
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Each import of eole warns about optional packages that are missing.
warnings.filterwarnings("ignore", category=RuntimeWarning, module="eole")

import sentencepiece  # noqa: E402
from eole.bin.run.build_vocab import BuildVocab  # noqa: E402
from eole.bin.run.train import Train  # noqa: E402
from eole.trainer import Trainer  # noqa: E402

TYPES = 32_000  # as in recipes/wmt17/prepare_wmt_ende_data.sh


def main() -> None:
    config_file, progress_file = map(Path, sys.argv[1:])
    config = json.loads(config_file.read_text("utf-8"))
    _prepare(config, config_file)

    counts = {"steps": 0, "sentences": 0}
    _end_data_on_signal(counts)
    run_command(Train, config_file)
    progress_file.write_text(json.dumps(counts), "utf-8")


def _prepare(config: dict[str, Any], config_file: Path) -> None:
    model = Path(config["transforms_configs"]["sentencepiece"]["src_subword_model"])
    corpus = config["data"]["corpus_1"]
    if not model.exists():
        sentencepiece.SentencePieceTrainer.train(
            input=[corpus["path_src"], corpus["path_tgt"]],
            model_prefix=str(model.with_suffix("")),
            vocab_size=TYPES,
            # Less text than the recipe's yields fewer types.
            hard_vocab_limit=False,
            character_coverage=1.0,
            model_type="unigram",
        )
    if not Path(config["src_vocab"]).exists():
        run_command(BuildVocab, config_file, "--n_sample", "-1")


def run_command(command: Any, config_file: Path, *arguments: str) -> None:
    """Runs one of eole's commands as its command line does."""
    parser = ArgumentParser()
    command.add_args(parser)
    command.run(parser.parse_args(["--config", str(config_file), *arguments]))


def _end_data_on_signal(counts: dict[str, int]) -> None:
    """Lets batches end on SIGINT, and counts steps and sentences."""
    stopping = False

    def ask_to_stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGINT, ask_to_stop)
    accumulated = Trainer._accum_batches

    def until_asked(trainer: Trainer, batches: Any) -> Iterator[Any]:
        for group, normalization in accumulated(trainer, batches):
            yield group, normalization
            counts["steps"] += 1
            counts["sentences"] += sum(len(batch["tgt"]) for batch in group)
            if stopping:
                return

    Trainer._accum_batches = until_asked


if __name__ == "__main__":
    main()
