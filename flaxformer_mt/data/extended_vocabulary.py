"""A trained model's vocabulary with further types: tags and symbols that its new text has.

They come after all others, so that every other type keeps its id and its row of the embeddings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.sentencepiece_training import ModelProto
from flaxformer_mt.data.type_table import AddedToken
from flaxformer_mt.data.vocabulary import Vocabularies, Vocabulary

_USER_DEFINED = ModelProto.SentencePiece.USER_DEFINED


def with_types_of(vocabularies: Vocabularies, data: DataConfig) -> Vocabularies:
    """The vocabularies with the tags and symbols of `data` that they would split: tags on the
    source's side, symbols on both. Unchanged if there are none."""
    named = [tag for corpus in (*data.train, *data.validation.values()) for tag in corpus.tags]
    symbols = data.vocabulary.symbols
    if vocabularies.shared:
        both = with_types(vocabularies.src, (*named, *symbols))
        return Vocabularies(both, both)
    src = with_types(vocabularies.src, (*named, *symbols))
    if data.vocabulary.tgt_types == "words":  # which are never split
        return Vocabularies(src, vocabularies.tgt)
    return Vocabularies(src, with_types(vocabularies.tgt, symbols))


def with_tags_of(vocabularies: Vocabularies, data: DataConfig) -> Vocabularies:
    """The same with the tags of `data` alone: a given model's own symbols are all that it has."""
    without = dataclasses.replace(data.vocabulary, symbols=())
    return with_types_of(vocabularies, dataclasses.replace(data, vocabulary=without))


def with_types(vocabulary: Vocabulary, texts: Sequence[str]) -> Vocabulary:
    """The vocabulary with a type of its own for each text that it would split, in their order."""
    new = [text for text in dict.fromkeys(texts) if not vocabulary.is_one_type(text)]
    if not new:
        return vocabulary
    if vocabulary.table is not None:
        table = vocabulary.table
        added = (*table.added, *map(AddedToken, new))
        pieces = (*table.pieces, *(text for text in new if text not in table.ids))
        return Vocabulary(vocabulary.model, dataclasses.replace(table, pieces=pieces, added=added))

    proto = ModelProto.FromString(vocabulary.model)
    known = {piece.piece: piece for piece in proto.pieces}
    for text in new:
        if text in known:  # a piece that text of its own isn't cut into
            known[text].type = _USER_DEFINED
        else:
            proto.pieces.add(piece=text, score=0.0, type=_USER_DEFINED)
        proto.trainer_spec.user_defined_symbols.append(text)
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return Vocabulary(proto.SerializeToString())


def new_types(before: Vocabularies, after: Vocabularies) -> list[str]:
    """The texts of the types that either side has after it was extended, and hadn't before."""
    sides = ((before.src, after.src), (before.tgt, after.tgt))
    pieces = [piece for old, new in sides for piece in new.pieces()[old.size :]]
    return [*dict.fromkeys(pieces)]
