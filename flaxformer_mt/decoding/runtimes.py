"""What searches for a `Translator`: this program's own search, or another program's."""

from collections.abc import Sequence
from typing import Any, Protocol

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.decoding.constraints.symbols import Continues
from flaxformer_mt.decoding.options import SearchOptions
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.text.decoded import Decoded, TextOf


class Searcher(Protocol):
    """Searches with fixed models and settings: token ids to token ids."""

    def decode(
        self, sources: Sequence[Source], *, continues: Continues | None = None
    ) -> list[list[Decoded]]:
        """The outputs of each source, best first, in the sources' order. Raises DecodingError."""

    def compile(
        self, lengths: Sequence[int], *, longest: int = 0, constrained: bool = False
    ) -> frozenset[tuple[int, int]]:
        """Makes ready for sources of these lengths; returns the shapes, (rows, source length), for
        which something was compiled."""


class OtherRuntime(Protocol):
    """Another program with a translator's model."""

    @property
    def name(self) -> str:
        """With what decides its outputs, such as "CTranslate2 4.8.5 in int8"."""

    @property
    def params(self) -> Any:
        """The translator's parameters, from which its own were made."""

    def search(
        self,
        config: DecodingConfig,
        options: SearchOptions,
        *,
        suppress: tuple[int, ...],
        text_of: TextOf,
    ) -> Searcher:
        """Its search with these settings. Raises DecodingError for one that it doesn't have."""
