"""How a server runs and what it allows one request to cost."""

from __future__ import annotations

import dataclasses
from typing import Literal

Log = Literal["quiet", "requests", "text"]


class SettingsError(ValueError):
    """Settings that contradict each other."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Sizes are of one request unless they say otherwise; seconds are wall time.

    Raises SettingsError for settings that contradict each other.
    """

    max_characters: int = 5000  # of all its texts
    max_texts: int = 64
    max_sentences: int = 256  # of all its texts, after they are cut at sentence ends
    max_body_bytes: int = 256 * 1024
    max_n_best: int = 8  # never more than the beam
    max_attention_weights: int = 400_000  # rows x columns x heads: about 3 MB of JSON
    seconds: float = 30.0  # from its last byte to the answer
    body_seconds: float = 10.0  # for its body to arrive, and for a client's silence otherwise
    batch_sentences: int = 16  # translated together
    waiting_sentences: int = 1024  # of all requests; beyond these the answer is 503
    connections: int = 512
    drain_seconds: float = 30.0  # for accepted requests, after a signal to stop
    warm_up_words: int = 40  # the longest sentence prepared for; 0: none
    keys: frozenset[str] = frozenset()  # empty: no key needed
    cors_origins: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()  # offered on the page
    log: Log = "quiet"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "warm_up_words" else 1
            if isinstance(value, int) and value < least:
                raise SettingsError(f"{field.name} = {value} must be at least {least}")
            if isinstance(value, float) and not 0 < value < float("inf"):
                raise SettingsError(f"{field.name} = {value} must be a positive number of seconds")
        if self.max_sentences > self.waiting_sentences:
            raise SettingsError(
                f"a request may have {self.max_sentences} sentences and only "
                f"{self.waiting_sentences} can wait: raise the latter, or lower the former"
            )
        if "" in self.keys:
            raise SettingsError("an empty API key would let everybody in")
