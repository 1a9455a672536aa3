"""What a caller demands of translations, in tokens: how they begin, and what they never hold."""

from __future__ import annotations

from collections.abc import Sequence

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from flaxformer_mt.decoding.batches import output_limit
from flaxformer_mt.decoding.decode import DecodingError
from flaxformer_mt.decoding.parts import PrefixError, encode
from flaxformer_mt.decoding.split import Piece


def types_of(pieces: Sequence[str], tgt: Vocabulary) -> tuple[int, ...]:
    """The ids of target pieces. Raises DecodingError for what is none."""
    if not pieces:
        return ()
    ids = {piece: number for number, piece in enumerate(tgt.pieces())}
    for piece in pieces:
        if piece not in ids or ids[piece] in (PAD, BOS, EOS):
            raise DecodingError(
                f"{piece!r} is no piece of the target vocabulary; a word's first piece begins "
                "with '\u2581'"
            )
    return tuple(ids[piece] for piece in pieces)


def prefix_tokens(
    prefixes: Sequence[str],
    tgt: Vocabulary,
    pieces: Sequence[Sequence[Piece]],
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    *,
    max_length: int,
) -> list[list[int]]:
    """The tokens that each piece's output begins with: of a line's pieces, the first's.

    `pieces` are those of each line, `sources` the tokens of all of them. Raises PrefixError for
    what the vocabulary cannot spell, and for a prefix that leaves no room.
    """
    lengths = map(len, sources)
    found = []
    for line, (tokens, parts) in enumerate(zip(encode(tgt, prefixes), pieces, strict=True)):
        if parts and UNK in tokens:
            text = prefixes[line].encode()
            spans = zip(*tgt.encode_with_spans(prefixes[line]), strict=True)
            unknown = {text[a:b].decode(): None for token, (a, b) in spans if token == UNK}
            raise PrefixError(
                line,
                f"has the prefix {prefixes[line]!r}; the target vocabulary cannot spell "
                f"{', '.join(map(repr, unknown))}",
            )
        for piece, length in zip(range(len(parts)), lengths, strict=False):
            limit = output_limit(config, length, max_length)
            if piece == 0 and len(tokens) >= limit:
                raise PrefixError(
                    line,
                    f"has a prefix of {len(tokens)} tokens; its translation has at most "
                    f"{limit}, the end mark included",
                )
            found.append(tokens if piece == 0 else [])
    return found
