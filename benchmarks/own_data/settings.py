"""The settings that our own search tries, the same for every corpus, and how it halves them.

They spread over what matters for little text: narrow and shallow models, high dropout and small
vocabularies (Araabi and Monz, 2020; van Biljon et al., 2020; Sennrich and Zhang, 2019), beside
wider ones that pay off with more text and time. A vocabulary gives way to text that yields fewer
types.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

SURVIVORS = {5: 16, 20: 4, 60: 2, 180: 2}  # how many settings train for so many minutes

# Seconds that two cores take for a target token and a parameter that it passes through, about. Only
# the spacing of checkpoints follows from it.
_SECONDS = 78e-12
_SAVE_EVERY, _SAVES_A_VALIDATION = 20.0, 4  # seconds, about


@dataclasses.dataclass(frozen=True)
class Setting:
    """One row of the table."""

    width: int
    encoder_layers: int
    decoder_layers: int
    heads: int
    ffn_width: int
    dropout: float
    types: int
    peak: float  # learning rate at the end of the warm-up
    warmup_steps: int
    batch_tokens: int

    def overrides(self) -> dict[str, Any]:
        """Changes to the config `files`, by dotted key. The study stops the run, not its steps."""
        save_every = max(5, round(_SAVE_EVERY / self._seconds_per_step()))
        return {
            "model.d_model": self.width,
            "model.encoder_layers": self.encoder_layers,
            "model.decoder_layers": self.decoder_layers,
            "model.num_heads": self.heads,
            "model.d_k": self.width // self.heads,
            "model.d_v": self.width // self.heads,
            "model.d_ff": self.ffn_width,
            "model.dropout": self.dropout,
            "data.vocabulary.size": self.types,
            "data.vocabulary.soft_size": True,
            "data.batch.tokens": self.batch_tokens,
            "data.batch.max_shapes": 6,
            "training.steps": 1_000_000,
            "training.patience": 0,
            "training.schedule.kind": "peak",
            "training.schedule.peak": self.peak,
            "training.schedule.warmup_steps": self.warmup_steps,
            "training.loss_chunk": 1024,
            "training.save_every": save_every,
            "training.validate_every": _SAVES_A_VALIDATION * save_every,
        }

    def _seconds_per_step(self) -> float:
        attention, ffn = 4 * self.width**2, 2 * self.width * self.ffn_width
        encoder = self.encoder_layers * (attention + ffn)
        decoder = self.decoder_layers * (2 * attention + ffn)
        return _SECONDS * self.batch_tokens * (encoder + decoder + self.types * self.width)


# fmt: off
SETTINGS: Mapping[str, Setting] = {
    f"search_{number:02}": Setting(*row) for number, row in enumerate((
        # width, layers, heads, ffn, dropout, types, peak, warm-up, tokens
        ( 96, 2, 2, 4,  384, 0.1,  2000, 0.0050, 200, 1024),
        (128, 2, 2, 4,  512, 0.0,  2000, 0.0035, 300, 2048),  # `files` before, 20,000 pairs
        (128, 2, 2, 4,  512, 0.2,  1000, 0.0050, 200, 1024),
        (128, 3, 3, 4,  512, 0.1,  4000, 0.0035, 300, 2048),
        (128, 4, 4, 2,  512, 0.3,  2000, 0.0030, 300, 1024),
        (192, 2, 2, 4,  768, 0.1,  4000, 0.0030, 300, 1024),
        (192, 3, 3, 4,  768, 0.3,  1000, 0.0030, 300, 2048),
        (192, 4, 2, 4,  768, 0.1,  8000, 0.0030, 300, 2048),
        (256, 1, 1, 4, 1024, 0.1,  4000, 0.0025, 300, 1024),
        (256, 2, 2, 4, 1024, 0.3,  2000, 0.0025, 300, 1024),
        (256, 3, 3, 4, 1024, 0.2,  8000, 0.0020, 400, 4096),
        (256, 4, 4, 4, 1024, 0.2,  8000, 0.0020, 500, 8192),  # `files` before, 300,000 pairs
        (256, 6, 2, 4, 1024, 0.2,  4000, 0.0015, 400, 2048),
        (384, 2, 2, 6, 1536, 0.3,  4000, 0.0015, 400, 2048),
        (384, 3, 3, 6, 1536, 0.1, 16000, 0.0015, 400, 4096),
        (512, 5, 5, 2,  512, 0.3,  4000, 0.0010, 800, 4096),  # Araabi and Monz, 10,000 pairs
    ), start=1)
}
# fmt: on


def halved(dev_scores: Mapping[str, float], minutes: int) -> tuple[str, ...]:
    """Which settings train for `minutes`, by their dev scores at the time before, best first.

    Of equal scores the setting that stands higher in the table is the better one.
    """
    order = list(SETTINGS)
    ranked = sorted(dev_scores, key=lambda name: (-dev_scores[name], order.index(name)))
    return tuple(ranked[: SURVIVORS[minutes]])
