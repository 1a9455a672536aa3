"""What a Marian checkpoint's settings and ids are in this program's terms.

Their models differ from the paper's in settings that `ModelConfig` has. Their types are renumbered:
here padding, begin, end and unknown are 0 to 3 in every vocabulary. Marian has no begin mark, its
decoder begins with padding: that type becomes the begin mark, and what is padding here is a type
without a share in the softmax.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.data.type_table import MARKS, TypeTable
from flaxformer_mt.data.vocabulary import PAD
from flaxformer_mt.export.errors import ModelImportError
from flaxformer_mt.export.marian_folder import MarianFolder
from flaxformer_mt.export.weights import Stack, Weights

# torch.nn.LayerNorm's, which no setting of theirs changes.
NORM_EPSILON = 1e-5
_ACTIVATIONS: dict[str, Literal["relu", "silu"]] = {
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
# Settings of theirs of which this program has the form of one value alone.
_REQUIRED = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "scale_embedding": True,
}
# No array of a checkpoint has to agree with what it says of these.
_MOST_POSITIONS = 1 << 16
# A logit that leaves nothing of a type's share in float32, and that training in any dtype survives.
NO_SHARE = -100.0


@dataclasses.dataclass(frozen=True)
class Types:
    """The types of one side: their pieces in this program's order, and their ids in the folder."""

    table: TypeTable
    ids: tuple[int, ...]


def model_config(config: Mapping[str, Any]) -> ModelConfig:
    """The model that a `config.json` describes. Raises ModelImportError naming what has no form."""
    try:
        problems = [
            f"{name} = {config[name]!r}"
            for name, value in _REQUIRED.items()
            if config.get(name, value) != value
        ]
        for name in ("attention_heads", "ffn_dim"):
            encoder, decoder = (_whole(config, f"{side}_{name}") for side in ("encoder", "decoder"))
            if encoder != decoder:
                problems.append(f"encoder_{name} = {encoder} and decoder_{name} = {decoder}")
        if config["activation_function"] not in _ACTIVATIONS:
            problems.append(f"activation_function = {config['activation_function']!r}")
        d_model, heads = _whole(config, "d_model"), config["encoder_attention_heads"]
        if d_model % heads or d_model % 2:
            problems.append(f"d_model = {d_model} with {heads} heads")
        if (positions := _whole(config, "max_position_embeddings")) > _MOST_POSITIONS:
            problems.append(f"max_position_embeddings = {positions}")
        if problems:
            raise ModelImportError(
                f"config.json: this program has no form for {'; '.join(problems)}"
            )
        return ModelConfig(
            encoder_layers=_whole(config, "encoder_layers"),
            decoder_layers=_whole(config, "decoder_layers"),
            d_model=d_model,
            d_ff=config["encoder_ffn_dim"],
            num_heads=heads,
            d_k=d_model // heads,
            d_v=d_model // heads,
            norm="post",
            norm_epsilon=NORM_EPSILON,
            positions="sinusoidal",
            max_length=positions,
            tie=_tie(config),
            activation=_ACTIVATIONS[config["activation_function"]],
            attention_bias=True,
            logits_bias=True,
            dropout=float(config.get("dropout", 0.1)),
            attention_dropout=float(config.get("attention_dropout", 0.0)),
            ffn_dropout=float(config.get("activation_dropout", 0.0)),
        )
    except ModelImportError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ModelImportError(f"config.json: is not a Marian model's: {error!r}") from error


def _tie(config: Mapping[str, Any]) -> Literal["all", "target", "none"]:
    """Both sides may share a table that the softmax has no part in: tied to nothing, here."""
    if not config.get("tie_word_embeddings", True):
        return "none"
    return "all" if is_shared(config) else "target"


def is_shared(config: Mapping[str, Any]) -> bool:
    """Whether source and target have one vocabulary, and one table of embeddings."""
    return bool(config.get("share_encoder_decoder_embeddings", True))


def sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """Source and target types. Raises ModelImportError."""
    src = _whole(config, "vocab_size")
    if is_shared(config) or config.get("decoder_vocab_size") is None:
        return src, src
    return src, _whole(config, "decoder_vocab_size")


def _whole(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or value < 1:
        raise ModelImportError(f"config.json: {name} = {value!r} is no whole number of at least 1")
    return value


def types_of(folder: MarianFolder) -> tuple[Types, Types]:
    """Source and target types. Raises ModelImportError for marks or ids that do not fit."""
    size, tgt_size = sizes(folder.config)
    start = folder.config.get("decoder_start_token_id")
    if start is not None and type(start) is not int:
        raise ModelImportError(f"config.json: decoder_start_token_id = {start!r} is no id")
    if is_shared(folder.config):
        one = _types(folder, folder.vocab, size, start)
        return one, one
    tgt = _types(folder, folder.target_vocab, tgt_size, start)
    # Nothing begins a source; a vocabulary may have the mark all the same.
    return _types(folder, folder.vocab, size, folder.vocab.get(MARKS[1])), tgt


def renumbered(weights: Weights, src: Types, tgt: Types) -> Weights:
    """The weights with rows in this program's order; padding has no share in the softmax."""
    if weights.softmax_bias is None:
        raise ValueError("the padding type needs a bias")
    src_ids, tgt_ids = np.array(src.ids), np.array(tgt.ids)
    softmax, bias = weights.softmax[tgt_ids], weights.softmax_bias[tgt_ids]
    decoder_table = weights.decoder.embedding[tgt_ids]
    encoder_table = weights.encoder.embedding[src_ids]
    if has_no_padding(tgt):
        # In a tied table the row is also padding's input, which nothing reads.
        for table in (softmax, decoder_table, encoder_table):
            table[PAD] = 0
        bias[PAD] = NO_SHARE

    def with_table(stack: Stack, table: np.ndarray) -> Stack:
        return dataclasses.replace(stack, embedding=table)

    return Weights(
        encoder=with_table(weights.encoder, encoder_table),
        decoder=with_table(weights.decoder, decoder_table),
        softmax=softmax,
        softmax_bias=bias,
    )


def has_no_padding(types: Types) -> bool:
    """Whether the folder's padding is the begin mark here, so that none is left for padding."""
    return types.ids[PAD] in types.ids[PAD + 1 :]


def _types(folder: MarianFolder, vocab: Mapping[str, int], size: int, start: int | None) -> Types:
    """`start` is the id that the decoder begins with; a source has none, and padding's place."""
    marks = {}
    for name, usual in (("pad", MARKS[0]), ("eos", MARKS[2]), ("unk", MARKS[3])):
        token = folder.tokenizer.get(f"{name}_token", usual)
        piece = token.get("content", usual) if isinstance(token, dict) else token
        if not isinstance(piece, str) or piece not in vocab:
            raise ModelImportError(f"{folder.path}: its vocabulary has no {name} mark {piece!r}")
        marks[name] = vocab[piece]
    eos = folder.config.get("eos_token_id")
    if eos is not None and eos != marks["eos"]:
        raise ModelImportError(
            f"{folder.path}: eos_token_id is {eos!r} in config.json and {marks['eos']} in the "
            "vocabulary"
        )
    if max(vocab.values()) >= size:
        raise ModelImportError(
            f"{folder.path}: the vocabulary has ids up to {max(vocab.values())}, and the model "
            f"{size} types"
        )
    first = [marks["pad"], marks["pad"] if start is None else start, marks["eos"], marks["unk"]]
    if not 0 <= first[1] < size or first[1] in first[2:]:
        raise ModelImportError(f"config.json: decoder_start_token_id = {start} fits no mark")
    names = {number: piece for piece, number in vocab.items()}
    pieces = list(MARKS)
    ids = list(first)
    for number in range(size):
        if number in first:
            continue
        # Rows beyond the vocabulary, and ordinary types that are written as marks are here.
        piece = names.get(number, f"<unused {number}>")
        pieces.append(f"{piece} {number}" if piece in MARKS else piece)
        ids.append(number)
    return Types(TypeTable(tuple(pieces)), tuple(ids))
