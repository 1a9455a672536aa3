"""Trains SentencePiece models on pieces, or on whole words."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data import normalization
from flaxformer_mt.errors import UserError

_TRAINING_THREADS = 16  # fixed: a unigram model depends on it
_DEFAULT_LONGEST_LINE = 4192
_ATTEMPTS = 3  # the chosen size, one for its characters, and one that the text yields
_TOO_HIGH = re.compile(r"Vocabulary size too high .*<= (\d+)")
_TOO_LOW = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")


# The message that a model's file is. Its class is made when the package is loaded: it has no type.
_protocol: Any = sentencepiece_model_pb2
ModelProto = _protocol.ModelProto


class VocabularyError(UserError):
    """A vocabulary that can't be trained or loaded."""


def trained_model(
    sentences: Iterable[str],
    config: VocabularyConfig,
    marks: Mapping[str, int],
    *,
    words: bool,
    symbols: Sequence[str] = (),
) -> bytes:
    """A model of `config.size` pieces, or with a type for each of the `words`; `symbols` are never
    split.

    `marks` has the ids of pad, bos, eos and unk. Raises VocabularyError.
    """
    text = list(sentences)
    size = config.size
    for _ in range(_ATTEMPTS):
        try:
            return _trained(text, config, size, marks, words=words, symbols=symbols)
        except RuntimeError as error:
            fitting = _fitting(str(error), size) if config.soft_size else None
            if fitting is None:
                raise VocabularyError(_explain(str(error), config)) from error
            size = fitting
    raise VocabularyError(f"SentencePiece could not train a vocabulary of {size:,} types")


def _trained(
    sentences: Sequence[str],
    config: VocabularyConfig,
    size: int,
    marks: Mapping[str, int],
    *,
    words: bool,
    symbols: Sequence[str],
) -> bytes:
    kind: dict[str, Any] = {
        "model_type": config.kind,
        "character_coverage": config.character_coverage,
        "byte_fallback": config.byte_fallback,
    }
    if config.split_digits:
        kind["split_digits"] = True
    if words:
        kind = {"model_type": "word", "use_all_vocab": True, "character_coverage": 1.0}
    # SentencePiece silently skips longer lines.
    longest = max((len(sentence.encode()) for sentence in sentences), default=0)
    ids: dict[str, Any] = {f"{mark}_id": number for mark, number in marks.items()}
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        user_defined_symbols=list(symbols),
        **kind,
        **_normalizing(config.normalization),
        **ids,
        max_sentence_length=max(longest, _DEFAULT_LONGEST_LINE),
        num_threads=_TRAINING_THREADS,
        minloglevel=2,
    )
    return model.getvalue()


def _fitting(message: str, size: int) -> int | None:
    """A size that the text allows, by SentencePiece's message."""
    if match := _TOO_HIGH.search(message):
        return int(match[1])
    if match := _TOO_LOW.search(message):
        # As many joined pieces as were meant for text of few characters.
        return int(match[1]) + size
    return None


def _normalizing(form: normalization.Form | Literal["none"]) -> dict[str, Any]:
    if form == "none":
        return {"normalization_rule_name": "identity", "remove_extra_whitespaces": True}
    sentencepiece.set_min_log_level(2)  # no report of the table of rules
    # With a file of rules, the model would record its path.
    normalizer = sentencepiece.SentencePieceNormalizer(
        norm_map=list(normalization.rules(form).items()),
        add_dummy_prefix=True,
        escape_whitespaces=True,
        remove_extra_whitespaces=True,
    )
    return {"normalizer": normalizer}


def _explain(message: str, config: VocabularyConfig) -> str:
    key = "data.vocabulary." + ("tgt_size" if config.size == config.tgt_size else "size")
    if match := _TOO_HIGH.search(message):
        most = f"{int(match[1]):,}"
        return f"{key}: the training text yields {most} types: set {most} or less"
    if match := _TOO_LOW.search(message):
        symbols = ", symbols" if config.symbols else ""
        return (
            f"{key} is {config.size:,}, but characters{symbols} and marks alone take "
            f"{int(match[1]):,}: raise it, or lower data.vocabulary.character_coverage"
        )
    return f"SentencePiece could not train a vocabulary of {config.size:,} types: {message}"
