"""The peers' documented configs on a corpus, and the commands that train and translate with them.

The configs are those of the versions in `benchmarks/peers/`. What differs from them is here: paths,
a CPU, cased text (it is scored cased), steps and epochs without an end, and JoeyNMT's Moses
tokenisation before its BPE, as in its other recipes, because its text is tokenised beforehand.
"""

import dataclasses
import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.own_data.corpora import Text
from flaxformer_mt.rundir.paths import write_json

_PROGRAMS = "benchmarks.own_data.peer_programs"
_ENDLESS = 1_000_000


@dataclasses.dataclass(frozen=True)
class JoeyNmt:
    """A size of JoeyNMT 2.3, from its `transformer_small.yaml` or `iwslt14_deen_bpe.yaml`."""

    name: str
    model: dict[str, Any]
    training: dict[str, Any]
    environment: ClassVar[str] = "joeynmt"
    stop: ClassVar[signal.Signals] = signal.SIGINT  # it saves, and ends

    def training_command(self, python: Path, text: Text, folder: Path, start: int) -> list[str]:
        config = self._config(text, folder, start)
        earlier = self.newest(folder)
        if earlier is not None:
            config["training"]["load_model"] = str(earlier)
        return _training_command(python, "joeynmt_training", config, folder, start)

    def translating_command(
        self, python: Path, text: Text, folder: Path, split: str, output: Path
    ) -> list[str]:
        checkpoint = self.newest(folder)
        assert checkpoint is not None
        config = self._config(text, folder, 0)
        config["model_dir"] = str(checkpoint.parent)
        config["testing"]["load_model"] = str(checkpoint)
        path = folder / "translate.json"
        write_json(path, config)
        module = f"{_PROGRAMS}.joeynmt_translating"
        source = text.path(split, 0)
        return [str(python), "-m", module, str(path), str(source), str(output)]

    def newest(self, folder: Path) -> Path | None:
        """The newest checkpoint."""
        return max(
            (path for path in folder.glob("start-*/*.ckpt") if not path.is_symlink()),
            key=lambda path: path.stat().st_mtime,
            default=None,
        )

    def _config(self, text: Text, folder: Path, start: int) -> dict[str, Any]:
        return {
            "name": self.name,
            "joeynmt_version": "2.3.0",
            "model_dir": str(folder / f"start-{start}"),
            "use_cuda": False,
            "random_seed": 42,
            "data": {
                "train": str(text.folder / "train"),
                "dev": str(text.folder / "dev"),
                "dataset_type": "plain",
                "src": self._side(text.corpus.languages[0], folder),
                "trg": self._side(text.corpus.languages[1], folder),
            },
            "testing": {
                "n_best": 1,
                "beam_size": 5,
                "beam_alpha": 1.0,
                "batch_size": 1024,
                "batch_type": "token",
                "max_output_length": 100,
                "eval_metrics": ["bleu"],
                "sacrebleu_cfg": {"tokenize": "13a"},
            },
            "training": {**self.training, "epochs": _ENDLESS, "overwrite": False},
            "model": self.model,
        }

    def _side(self, language: str, folder: Path) -> dict[str, Any]:
        return {
            "lang": language,
            "max_length": 62,
            "lowercase": False,
            "normalize": False,
            "level": "bpe",
            "voc_min_freq": 1,
            "voc_file": str(folder / "vocabulary.txt"),
            "tokenizer_type": "subword-nmt",
            "tokenizer_cfg": {
                "num_merges": 32_000,
                "codes": str(folder / "bpe.codes"),
                "pretokenizer": "moses",
            },
        }


@dataclasses.dataclass(frozen=True)
class Eole:
    """A size of eole 0.6: the model of its quickstart, or that of its Transformer FAQ.

    Both have the tokenisation of `recipes/wmt17/wmt17_ende_spm.yaml`.
    """

    name: str
    model: dict[str, Any]
    training: dict[str, Any]
    environment: ClassVar[str] = "eole"
    stop: ClassVar[signal.Signals] = signal.SIGINT  # `eole_training.py` then ends the data

    def training_command(self, python: Path, text: Text, folder: Path, start: int) -> list[str]:
        config = self._config(text, folder, start)
        earlier = self.newest(folder)
        if earlier is not None:
            config["training"]["train_from"] = str(earlier)
        return _training_command(python, "eole_training", config, folder, start)

    def translating_command(
        self, python: Path, text: Text, folder: Path, split: str, output: Path
    ) -> list[str]:
        config = {
            "model_path": [str(self.newest(folder))],
            "src": str(text.path(split, 0)),
            "output": str(output),
            "beam_size": 5,
            "batch_size": 4096,
            "batch_type": "tokens",
            "world_size": 0,
            "gpu_ranks": [],
        }
        path = folder / "translate.json"
        write_json(path, config)
        return [str(python), "-m", f"{_PROGRAMS}.eole_translating", str(path)]

    def newest(self, folder: Path) -> Path | None:
        """The newest checkpoint, a folder."""
        return max(
            (path.parent for path in folder.glob("start-*/step_*/config.json")),
            key=lambda path: path.stat().st_mtime,
            default=None,
        )

    def _config(self, text: Text, folder: Path, start: int) -> dict[str, Any]:
        pieces = str(folder / "spm.model")
        vocabulary = str(folder / "vocabulary.txt")
        sides = {
            split: {
                "path_src": str(text.path(split, 0)),
                "path_tgt": str(text.path(split, 1)),
            }
            for split in ("train", "dev")
        }
        return {
            "save_data": str(folder / "samples"),
            "overwrite": True,
            "seed": 1234,
            "report_every": 100,
            "src_vocab": vocabulary,
            "tgt_vocab": vocabulary,
            "src_vocab_size": 36_000,
            "tgt_vocab_size": 36_000,
            "vocab_size_multiple": 8,
            "share_vocab": True,
            "n_sample": 0,
            "data": {"corpus_1": sides["train"], "valid": sides["dev"]},
            "transforms": ["sentencepiece", "filtertoolong"],
            "transforms_configs": {
                "sentencepiece": {"src_subword_model": pieces, "tgt_subword_model": pieces},
                "filtertoolong": {"src_seq_length": 512, "tgt_seq_length": 512},
            },
            "training": {
                **self.training,
                "model_path": str(folder / f"start-{start}"),
                "train_steps": _ENDLESS,
                "keep_checkpoint": 2,
                "world_size": 0,
                "gpu_ranks": [],
            },
            "model": {"architecture": "transformer", **self.model},
        }


Peer = JoeyNmt | Eole


@dataclasses.dataclass(frozen=True)
class Progress:
    """Steps, and sentence pairs seen, of all starts of a run that ended as asked."""

    steps: int
    sentences: int


def progress(folder: Path) -> Progress:
    counts = [json.loads(path.read_text("utf-8")) for path in folder.glob("progress-*.json")]
    return Progress(
        steps=sum(count["steps"] for count in counts),
        sentences=sum(count["sentences"] for count in counts),
    )


def _training_command(
    python: Path, program: str, config: Mapping[str, Any], folder: Path, start: int
) -> list[str]:
    """Runs a program of `peer_programs/` on the config of this start, which is written."""
    path = folder / f"start-{start}.json"
    write_json(path, config)
    words = [f"{_PROGRAMS}.{program}", str(path), str(_progress(folder, start))]
    return [str(python), "-m", *words]


def _progress(folder: Path, start: int) -> Path:
    return folder / f"progress-{start}.json"


def _joeynmt_model(
    *, layers: int, width: int, ffn: int, dropout: float, tied: bool
) -> dict[str, Any]:
    side = {
        "type": "transformer",
        "num_layers": layers,
        "num_heads": 4,
        "embeddings": {"embedding_dim": width, "scale": True, "dropout": 0.0},
        "hidden_size": width,
        "ff_size": ffn,
        "dropout": dropout,
        "layer_norm": "pre",
        "activation": "relu",
    }
    return {
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
        "embed_init_gain": 1.0,
        "init_gain": 1.0,
        "bias_initializer": "zeros",
        "tied_embeddings": tied,
        "tied_softmax": True,
        "encoder": side,
        "decoder": side,
    }


# As transformer_small.yaml has them; its `updates: 100` and `epochs: 1` are for the toy text.
_JOEYNMT_SMALL = {
    "optimizer": "adamw",
    "adam_betas": [0.9, 0.999],
    "learning_rate": 0.005,
    "learning_rate_min": 0.0001,
    "clip_grad_val": 1.0,
    "weight_decay": 0.0,
    "label_smoothing": 0.0,
    "batch_size": 10,
    "batch_type": "sentence",
    "normalization": "batch",
    "scheduling": "plateau",
    "patience": 5,
    "decrease_factor": 0.5,
    "early_stopping_metric": "loss",
    # Its 10 are for 100 updates; those of iwslt14_deen_bpe.yaml.
    "validation_freq": 1000,
    "logging_freq": 100,
    "keep_best_ckpts": 3,
}
_JOEYNMT_IWSLT = {
    "optimizer": "adamw",
    "adam_betas": [0.9, 0.999],
    "learning_rate": 0.0003,
    "learning_rate_min": 0.00000001,
    "weight_decay": 0.0,
    "label_smoothing": 0.1,
    "batch_size": 4096,
    "batch_type": "token",
    "normalization": "tokens",
    "scheduling": "plateau",
    "patience": 5,
    "decrease_factor": 0.7,
    "early_stopping_metric": "bleu",
    "validation_freq": 1000,
    "logging_freq": 100,
    "keep_best_ckpts": 5,
}
_EOLE_QUICKSTART = {"save_checkpoint_steps": 500, "valid_steps": 500, "bucket_size": 1000}
_EOLE_BASE = {
    "save_checkpoint_steps": 10_000,
    "valid_steps": 10_000,
    "bucket_size": 262_144,
    "num_workers": 2,
    "batch_type": "tokens",
    "batch_size": 4096,
    "valid_batch_size": 2048,
    "accum_count": [4],
    "accum_steps": [0],
    "optim": "adam",
    "learning_rate": 2,
    "warmup_steps": 8000,
    "decay_method": "noam",
    "adam_beta2": 0.998,
    "max_grad_norm": 0,
    "label_smoothing": 0.1,
    "param_init_method": "xavier_uniform",
    "normalization": "tokens",
    "dropout_steps": [0],
    "dropout": [0.1],
    "attention_dropout": [0.1],
}

PEERS: Sequence[Peer] = (
    JoeyNmt(
        "joeynmt_iwslt",
        _joeynmt_model(layers=6, width=256, ffn=1024, dropout=0.3, tied=True),
        _JOEYNMT_IWSLT,
    ),
    JoeyNmt(
        "joeynmt_small",
        _joeynmt_model(layers=3, width=64, ffn=128, dropout=0.1, tied=False),
        _JOEYNMT_SMALL,
    ),
    Eole("eole_quickstart", {}, _EOLE_QUICKSTART),
    Eole(
        "eole_base",
        {
            "layers": 6,
            "heads": 8,
            "hidden_size": 512,
            "transformer_ff": 2048,
            "embeddings": {
                "word_vec_size": 512,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
        _EOLE_BASE,
    ),
)
