"""A run's model as a folder that `MarianMTModel` and `MarianTokenizer` of transformers load.

Written with neither PyTorch nor transformers. What that form has no place for is refused: pre-LN,
learned positions, and heads wider than d_model / num_heads. Its layer normalisation has epsilon
1e-5 whatever the model had; the comparison shows what that comes to.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from flaxformer_mt.config import DataConfig
from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies
from flaxformer_mt.decoding import Translator
from flaxformer_mt.export.errors import ExportError
from flaxformer_mt.export.folder_settings import Search, search_of
from flaxformer_mt.export.heads import usual_heads
from flaxformer_mt.export.marian_state import to_state
from flaxformer_mt.export.readme import write_readme
from flaxformer_mt.export.weights import Weights, from_params

BOUND = 1e-3
ACTIVATIONS = {"relu": "relu", "silu": "swish"}
_USE = """\
from transformers import MarianMTModel, MarianTokenizer

tokenizer, model = MarianTokenizer.from_pretrained("."), MarianMTModel.from_pretrained(".")
best = model.generate(**tokenizer(["TEXT"], return_tensors="pt"))
print(tokenizer.batch_decode(best, skip_special_tokens=True)[0])
"""
_NOTES = """\
How it searches stands in `generation_config.json`; arguments of `generate` say otherwise.

"""


def write(translator: Translator, folder: Path, *, languages: DataConfig) -> None:
    """Writes configs, weights, tokenizer and a README.

    Raises ExportError where the form has no place for the model, before anything is written, and
    where the package safetensors is missing.
    """
    config = translator.model.config
    weights = _weights(translator, config)
    safetensors = _safetensors()
    state = to_state(weights, tie=config.tie)
    safetensors.save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    _write_json(folder / "config.json", _config(translator))
    search = search_of(translator.config, "transformers")
    _write_json(folder / "generation_config.json", _generation(translator, search))
    write_tokenizer(translator.vocabularies, folder, languages, config.max_length)
    write_readme(
        folder,
        title="A Marian model for Hugging Face transformers",
        install="transformers sentencepiece torch",
        use=_USE,
        notes=_NOTES + search.notes + "\n",
    )


def write_tokenizer(
    vocabularies: Vocabularies, folder: Path, languages: DataConfig, max_length: int
) -> None:
    """The files of a `MarianTokenizer`, whose ids are this program's."""
    src, tgt = vocabularies.src.pieces(), vocabularies.tgt.pieces()
    (folder / "source.spm").write_bytes(vocabularies.src.model)
    (folder / "target.spm").write_bytes(vocabularies.tgt.model)
    _write_json(folder / "vocab.json", {piece: number for number, piece in enumerate(src)})
    if src != tgt:
        ids = {piece: number for number, piece in enumerate(tgt)}
        _write_json(folder / "target_vocab.json", ids)
    pad, eos, unk = vocabularies.src.pieces([PAD, EOS, UNK])
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": languages.src_lang,
        "target_lang": languages.tgt_lang,
        "separate_vocabs": src != tgt,
        "pad_token": pad,
        "eos_token": eos,
        "unk_token": unk,
        # Blanks before full stops and the like are text.
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }
    _write_json(folder / "tokenizer_config.json", tokenizer)


def _weights(translator: Translator, config: ModelConfig) -> Weights:
    problems = []
    if config.norm != "post":
        problems.append("its layers are post-LN, and model.norm = 'pre'")
    if config.positions != "sinusoidal":
        problems.append("its positions are sinusoids, and model.positions = 'learned'")
    if problems:
        raise ExportError(f"Hugging Face's Marian cannot hold this model: {'; '.join(problems)}")
    weights = from_params(
        translator.params,
        config,
        src_types=translator.model.src_vocab_size,
        tgt_types=translator.model.tgt_vocab_size,
    )
    return usual_heads(weights, config, "Hugging Face's Marian")


def _config(translator: Translator) -> dict[str, Any]:
    model = translator.model
    config = model.config
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": model.src_vocab_size,
        "decoder_vocab_size": model.tgt_vocab_size,
        "share_encoder_decoder_embeddings": config.tie == "all",
        "tie_word_embeddings": config.tie != "none",
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.ffn_dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "max_position_embeddings": config.max_length,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": EOS,
        "is_encoder_decoder": True,
        "torch_dtype": "float32",
    }


def _generation(translator: Translator, search: Search) -> dict[str, Any]:
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": EOS,
        # What this program never generates.
        "bad_words_ids": [[PAD], [BOS], [UNK]],
        "max_length": translator.model.config.max_length,
        "num_beams": search.beam_size,
        "length_penalty": search.length_penalty,
        "no_repeat_ngram_size": search.no_repeat_ngram,
    }


def _safetensors() -> Any:
    try:
        return importlib.import_module("safetensors.numpy")
    except ImportError as error:
        raise ExportError(
            "weights for Hugging Face are written by the package safetensors, which is not "
            "installed: pip install 'flaxformer-mt[export]'"
        ) from error


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
