"""Trains SentencePiece models on pieces, or on whole words."""

import dataclasses
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import sentencepiece

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data import normalization
from flaxformer_mt.errors import UserError

_TRAINING_THREADS = 16  # fixed: a unigram model depends on it
_DEFAULT_LONGEST_LINE = 4192


class VocabularyError(UserError):
    """A vocabulary that can't be trained or loaded."""


def trained_model(
    sentences: Iterable[str],
    config: VocabularyConfig,
    marks: Mapping[str, int],
    *,
    words: bool,
    tags: Sequence[str] = (),
) -> bytes:
    """A model of `config.size` pieces, or with a type for each of the `words`, and whole `tags`.

    With `config.fit_size`, a size that doesn't fit the text becomes the nearest that does. `marks`
    has the ids of pad, bos, eos and unk. Raises VocabularyError.
    """
    kept = list(sentences)
    try:
        return _trained(kept, config, marks, words=words, tags=tags)
    except RuntimeError as error:
        reason = str(error)
    if config.fit_size and (size := _fitting_size(reason, config.size)):
        return trained_model(
            kept, dataclasses.replace(config, size=size), marks, words=words, tags=tags
        )
    raise VocabularyError(_explain(reason, config))


def _trained(
    kept: Sequence[str],
    config: VocabularyConfig,
    marks: Mapping[str, int],
    *,
    words: bool,
    tags: Sequence[str],
) -> bytes:
    """Raises RuntimeError with SentencePiece's reason."""
    kind: dict[str, Any] = {
        "model_type": config.kind,
        "character_coverage": config.character_coverage,
        "byte_fallback": config.byte_fallback,
    }
    if words:
        kind = {"model_type": "word", "use_all_vocab": True, "character_coverage": 1.0}
    # SentencePiece silently skips longer lines.
    longest = max((len(sentence.encode()) for sentence in kept), default=0)
    ids: dict[str, Any] = {f"{mark}_id": number for mark, number in marks.items()}
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(kept),
        model_writer=model,
        vocab_size=config.size,
        user_defined_symbols=list(tags),
        **kind,
        **_normalizing(config.normalization),
        **ids,
        max_sentence_length=max(longest, _DEFAULT_LONGEST_LINE),
        num_threads=_TRAINING_THREADS,
        minloglevel=2,
    )
    return model.getvalue()


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


def _most_types(reason: str) -> int | None:
    """How many types SentencePiece says that the text yields."""
    match = re.search(r"Vocabulary size too high .*<= (\d+)", reason)
    return int(match[1]) if match else None


def _fewest_types(reason: str) -> int | None:
    """How many types SentencePiece says that characters and marks alone take."""
    match = re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason)
    return int(match[1]) if match else None


def _fitting_size(reason: str, size: int) -> int | None:
    """The nearest size to train with instead, if one is known from SentencePiece's reason.

    Characters alone would spell every word: above them, it leaves as many pieces as were asked for.
    """
    most, fewest = _most_types(reason), _fewest_types(reason)
    if most is not None:
        return most if most < size else None
    return None if fewest is None else fewest + size


def _explain(reason: str, config: VocabularyConfig) -> str:
    if (most := _most_types(reason)) is not None:
        return (
            f"data.vocabulary.size: the training text yields {most:,} types: set {most:,} or less"
        )
    if (fewest := _fewest_types(reason)) is not None:
        return (
            f"data.vocabulary.size is {config.size:,}, but characters and marks alone take "
            f"{fewest:,}: raise it, or lower data.vocabulary.character_coverage"
        )
    return f"SentencePiece could not train a vocabulary of {config.size:,} types: {reason}"
