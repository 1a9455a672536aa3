"""What is served: the model as this room sees it, and the facts about it that clients may know."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.attention import Attention
from flaxformer_mt.decoding.parts import Overlong
from flaxformer_mt.decoding.translation import Translation


class ServedTranslator(Protocol):
    """The part of `decoding.translator.Translator` that requests reach, from one thread only."""

    def translate(
        self, lines: Sequence[str], *, n_best: int = 1, overlong: Overlong = "split"
    ) -> list[Translation]: ...
    def compile(
        self, lines: Sequence[str], *, n_best: int = 1, longest: str = ""
    ) -> frozenset[tuple[int, int]]: ...
    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Alignment]: ...
    def attend(self, src: str, tgt: str) -> Attention: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """What clients are told of the model. Languages are codes such as "en"."""

    src_lang: str
    tgt_lang: str
    name: str  # the experiment's title
    weights: str  # which weights, such as "step 5200"
    beam_size: int
    encoder_layers: int
    decoder_layers: int
    diverse: bool = False  # whether the beam is searched in groups
    codes: frozenset[str] = frozenset()  # language codes that its sources may begin with
