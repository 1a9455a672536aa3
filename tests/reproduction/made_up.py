"""Result files as `reproduce` writes them, without training anything."""

import json
from pathlib import Path
from typing import Any

from flaxformer_mt.reproduction.experiment import Experiment, resolve
from flaxformer_mt.reproduction.paper import row_of
from flaxformer_mt.reproduction.records import FULL, REDUCED
from flaxformer_mt.reproduction.result_file import Machine
from flaxformer_mt.reproduction.settings import Corpus, ReproductionSettings

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
TOY = Corpus(name="toy", train=("train.en", "train.de"), valid=("valid.en", "valid.de"))
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MACHINE = Machine(cores=2, memory_gib=24.0, accelerator="none")
NUMBERS: dict[str, Any] = {
    "bleu_paper": 25.0,
    "bleu_paper_low": 24.0,
    "bleu_paper_high": 26.0,
    "sacrebleu_13a": 24.25,
    "chrf": 50.0,
    "perplexity": 5.25,
    "steps": 1000,
    "pairs": 45_000,
    "parameters": 63_000_000,
    "training_flops": 8.5e15,
    "device_hours": 1.25,
}


def experiment(label: str = "table3/base", **settings: Any) -> Experiment:
    return resolve(row_of(label), ReproductionSettings(**{"scale": 0.01, **settings}))


def result(of: Experiment, **changes: Any) -> dict[str, Any]:
    """The content of its result file; `metric=value` and `details={...}` change it."""
    details = changes.pop("details", {})
    return {
        "name": of.name,
        "command": of.command,
        "config": of.row.spec,
        "commit": COMMIT,
        "machine": {"cores": 16, "memory_gib": 128.0, "accelerator": "NVIDIA H200"},
        "versions": {"jax": "0.10.2"},
        "seconds": 4500.0,
        "metrics": {**NUMBERS, "seed": of.seed, "scale": of.settings.scale, **changes},
        "signatures": {"bleu_paper": "tok:moses-de", "sacrebleu_13a": "tok:13a", "chrf": "nc:6"},
        "details": {
            **of.details(),
            "status": FULL if of.is_the_paper_s else REDUCED,
            "data": "wmt14: 45,000 training pairs",
            "test": "valid, 3,000 sentences",
            **details,
        },
    }


def write(folder: Path, content: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{content['name']}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
