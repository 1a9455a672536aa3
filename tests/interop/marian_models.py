"""Marian checkpoints with random weights, of the form that OPUS-MT's have."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from flaxformer_mt.grammar.text import pairs
from tests.data.pairs import sentencepiece_model

ENGLISH, GERMAN = zip(*pairs("train", 100), strict=True)
SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}


@functools.cache
def model_of(language: str) -> bytes:
    sentences = {"en": ENGLISH, "de": GERMAN}[language]
    return sentencepiece_model(sentences, model_type="bpe", vocab_size=90)


def pieces(language: str) -> list[str]:
    """Every piece but the marks."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_of(language))
    return [processor.id_to_piece(number) for number in range(3, processor.get_piece_size())]


def vocabulary(*languages: str) -> dict[str, int]:
    """Marian's order: the end mark, the unknown type, pieces, a language code, padding last."""
    every = dict.fromkeys(piece for language in languages for piece in pieces(language))
    return {piece: n for n, piece in enumerate(["</s>", "<unk>", *every, ">>deu<<", "<pad>"])}


def write_tokenizer(folder: Path, *, separate: bool) -> tuple[int, int]:
    """The tokenizer's files; the number of source and target types."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.spm").write_bytes(model_of("en"))
    (folder / "target.spm").write_bytes(model_of("de"))
    src = vocabulary("en") if separate else vocabulary("en", "de")
    tgt = vocabulary("de") if separate else src
    (folder / "vocab.json").write_text(json.dumps(src, ensure_ascii=False))
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(tgt, ensure_ascii=False))
    tokenizer = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    tokenizer["tokenizer_class"] = "MarianTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return len(src), len(tgt)


def write_arrays(folder: Path, *, separate: bool = False, **changes: Any) -> dict[str, np.ndarray]:
    """A checkpoint with these changes of its config; its random float16 arrays are returned."""
    from safetensors.numpy import save_file

    src_size, tgt_size = write_tokenizer(folder, separate=separate)
    config = {
        "model_type": "marian",
        "num_beams": 6,
        "vocab_size": src_size,
        "decoder_vocab_size": tgt_size,
        "share_encoder_decoder_embeddings": not separate,
        "activation_function": "swish",
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "pad_token_id": tgt_size - 1,
        "decoder_start_token_id": tgt_size - 1,
        **SIZES,
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config))

    tied = changes.get("tie_word_embeddings", True)
    shapes = {
        **table_shapes(src_size, tgt_size, separate=separate, tied=tied),
        **layer_shapes("encoder", ["self_attn"]),
        **layer_shapes("decoder", ["self_attn", "encoder_attn"]),
    }
    for name, shape in list(shapes.items()):
        if ".layers." in name:
            shapes[name.replace(".weight", ".bias")] = shape[:1]
    rng = np.random.default_rng(0)
    arrays = {
        name: np.float16(name.endswith("norm.weight") + 0.2 * rng.standard_normal(shape))
        for name, shape in shapes.items()
    }
    save_file(arrays, str(folder / "model.safetensors"))
    return arrays


def table_shapes(
    src_size: int, tgt_size: int, *, separate: bool, tied: bool
) -> dict[str, tuple[int, ...]]:
    """Shapes of the embeddings, the softmax table and its bias."""
    d_model = SIZES["d_model"]
    shapes: dict[str, tuple[int, ...]] = {"final_logits_bias": (1, tgt_size)}
    # Since version 5 transformers has each side's own table where it ties none.
    if separate or not tied:
        shapes["model.encoder.embed_tokens.weight"] = (src_size, d_model)
        shapes["model.decoder.embed_tokens.weight"] = (tgt_size, d_model)
    if not separate and tied:
        shapes["model.shared.weight"] = (src_size, d_model)
    if not tied:
        shapes["lm_head.weight"] = (tgt_size, d_model)
    return shapes


def layer_shapes(side: str, attentions: list[str]) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights in an encoder's or decoder's layers."""
    d_model, d_ff = SIZES["d_model"], SIZES["encoder_ffn_dim"]
    shapes: dict[str, tuple[int, ...]] = {}
    for number in range(SIZES[f"{side}_layers"]):
        prefix = f"model.{side}.layers.{number}"
        for attention in attentions:
            for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
                shapes[f"{prefix}.{attention}.{projection}.weight"] = (d_model, d_model)
        shapes[f"{prefix}.fc1.weight"] = (d_ff, d_model)
        shapes[f"{prefix}.fc2.weight"] = (d_model, d_ff)
        for attention in attentions:
            shapes[f"{prefix}.{attention}_layer_norm.weight"] = (d_model,)
        shapes[f"{prefix}.final_layer_norm.weight"] = (d_model,)
    return shapes
