"""The deviations that are settings here: of the model and its training, and of the search alone.

All are changes to `configs/quickstart.py`. Its schedule is the paper's curve by its highest value,
so that a warm-up of a tenth with the same rates after it has sqrt(10) times the peak.
"""

import dataclasses
from collections.abc import Mapping

from flaxformer_mt.config import read_config

BLEU = "sacrebleu_13a"  # by which all are compared
_QUICKSTART = read_config("quickstart").training
STEPS = _QUICKSTART.steps
PEAK, WARMUP = _QUICKSTART.schedule.peak, _QUICKSTART.schedule.warmup_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """A deviation that a model is trained with; its metrics begin with `name`."""

    name: str
    description: str
    found_in: str
    settings: Mapping[str, object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Searched:
    """A deviation that needs no training: settings under `decoding`, and which weights are used."""

    name: str
    description: str
    found_in: str
    settings: Mapping[str, object]
    averaged: bool = True


PAPER = "paper"
SHORT_WARMUP: Mapping[str, object] = {
    "training.schedule.warmup_steps": WARMUP // 10,
    "training.schedule.peak": round(PEAK * 10**0.5, 6),
}
TRAINED = (
    Trained(
        name="norm_pre",
        description="layer normalisation before each sub-layer",
        found_in="tensor2tensor's later defaults; most models since",
        settings={"model.norm": "pre"},
    ),
    Trained(
        name="warmup_short",
        description="a tenth of the warm-up, the same rates after it",
        found_in="recipes for pre-LN models",
        settings=SHORT_WARMUP,
    ),
    Trained(
        name="norm_pre_warmup_short",
        description="the two together",
        found_in="the same",
        settings={"model.norm": "pre", **SHORT_WARMUP},
    ),
    Trained(
        name="rate_doubled",
        description="twice the learning rate",
        found_in="tensor2tensor's `transformer_base_v3`",
        settings={"training.schedule.peak": 2 * PEAK},
    ),
    Trained(
        name="positions_learned",
        description="learned positions without the tokens' factor",
        found_in="BERT, BART",
        settings={"model.positions": "learned", "model.position_scale": "one"},
    ),
    Trained(
        name="positions_learned_scaled",
        description="learned positions",
        found_in="the paper's own Table 3 (E)",
        settings={"model.positions": "learned"},
    ),
    Trained(
        name="tie_target",
        description="source embedding apart",
        found_in="fairseq's `--share-decoder-input-output-embed`",
        settings={"model.tie": "target"},
    ),
    Trained(
        name="untied",
        description="three matrices for source, target and softmax",
        found_in="the defaults of fairseq and OpenNMT-py",
        settings={"model.tie": "none"},
    ),
    Trained(
        name="inner_dropout",
        description="dropout 0.1 on attention weights and after the ReLU",
        found_in="tensor2tensor's `transformer_base_v3`, `torch.nn.Transformer`",
        settings={"model.attention_dropout": 0.1, "model.ffn_dropout": 0.1},
    ),
    Trained(
        name="attention_bias",
        description="biases in attention's projections",
        found_in="PyTorch, fairseq, Marian",
        settings={"model.attention_bias": "true"},
    ),
    Trained(
        name="silu",
        description="SiLU instead of ReLU",
        found_in="OPUS-MT's Marian models",
        settings={"model.activation": "silu"},
    ),
    Trained(
        name="no_smoothing",
        description="no label smoothing",
        found_in="tutorials; Table 3 (D)",
        settings={"training.label_smoothing": 0.0},
    ),
    Trained(
        name="adam_epsilon",
        description="Adam's epsilon 1e-8",
        found_in="the default of PyTorch and Optax",
        settings={"training.optimizer.epsilon": 1e-8},
    ),
    Trained(
        name="adam_beta2",
        description="Adam's second decay 0.999",
        found_in="the default of PyTorch and Optax",
        settings={"training.optimizer.beta2": 0.999},
    ),
    Trained(
        name="clip_norm",
        description="gradients clipped to a norm of 1",
        found_in="Marian's default",
        settings={"training.optimizer.clip_norm": 1.0},
    ),
    Trained(
        name="norm_epsilon",
        description="layer normalisation with epsilon 1e-5",
        found_in="PyTorch's default; OPUS-MT",
        settings={"model.norm_epsilon": 1e-5},
    ),
)
SEARCHED = (
    Searched(
        name="no_averaging",
        description="the last checkpoint alone",
        found_in="nearly every default",
        settings={},
        averaged=False,
    ),
    Searched(
        name="greedy", description="greedy search", found_in="tutorials", settings={"beam_size": 1}
    ),
    Searched(
        name="no_length_penalty",
        description="no length penalty",
        found_in="tutorials",
        settings={"length_penalty": 0.0},
    ),
    Searched(
        name="length_norm_average",
        description="log P / \\|Y\\|, the mean of the tokens'",
        found_in="CTranslate2, Hugging Face, fairseq",
        settings={"length_penalty": 1.0, "length_norm": "average"},
    ),
    Searched(
        name="ends_among_beam",
        description="only the beam's best continuations may end",
        found_in="CTranslate2, Hugging Face",
        settings={"ends_among": "beam"},
    ),
)
