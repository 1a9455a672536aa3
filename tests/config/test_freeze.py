"""From a mapping to the frozen config and back, and what is refused on the way, word for word."""

import math
from typing import Any

import pytest

from flaxformer_mt.config import ConfigError, freeze


def nested(key: str, value: Any) -> dict[str, Any]:
    """{"a": {"b": value}} of "a.b"."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def message(values: Any) -> str:
    with pytest.raises(ConfigError) as error:
        freeze(values, "the origin")
    start, _, said = str(error.value).partition(": ")
    assert start == "the origin"
    return said


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("modle", {}, "unknown key 'modle'; did you mean 'model'?"),
        ("data.train.mine.source", "x", "unknown key 'data.train.mine.source'; did you mean 'src'"),
        ("model.d_model", 512.0, "'model.d_model' = 512.0: must be of type int"),
        ("model.d_model", True, "'model.d_model' = True: must be of type int"),
        ("model.dropout", False, "'model.dropout' = False: must be of type float"),
        ("model.dropout", math.nan, "'model.dropout' = nan: must be a finite number"),
        ("model.remat", 1, "'model.remat' = 1: must be of type bool"),
        ("model.norm", "rms", "'model.norm' = 'rms': must be one of 'post', 'pre'"),
        ("training.freeze", [1], "'training.freeze' = [1]: must be a list of strings"),
        ("data.train", ["a"], "'data.train' maps names to corpora, not ['a']"),
        ("data.train.a", "x", "'data.train.a' is a group, not 'x'"),
    ],
)
def test_unknown_keys_and_wrong_types_are_named(key, value, wanted):
    assert message(nested(key, value)).startswith(wanted)


OF_WORDS = {"tgt_types": "words", "shared": False}


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("model.num_heads", 0, "'model.num_heads' = 0 must be at least 1"),
        ("training.seed", 10**22, "must be at most 2,147,483,647"),
        ("data.train.mine.size", 3 * 10**9, "'data.train.mine.size' = 3000000000 must be at most"),
        ("decoding.beam_size", 9_000_000, "'decoding.beam_size' = 9000000 must be at most 65,536"),
        ("decoding.length_penalty", 11, "'decoding.length_penalty' = 11.0 must be at most 10"),
        ("training.loss_chunk", -2, "'training.loss_chunk' = -2 must be at least -1"),
        ("data.train.a.weight", -1, "'data.train.a.weight' = -1.0 must not be negative"),
        ("data.vocabulary.size", 4, "must be at least 5"),
        ("model.dropout", 1.0, "'model.dropout' = 1.0 must lie in [0, 1)"),
        ("training.patience", -1, "'training.patience' = -1 must not be negative"),
        ("training.optimizer.epsilon", 0, "'training.optimizer.epsilon' = 0.0 must be positive"),
        ("training.schedule.factor", 0, "'training.schedule.factor' = 0.0 must be positive"),
        ("training.schedule.kind", "peak", "'training.schedule.peak' must be set when"),
        ("model.d_model", 511, "'model.d_model' = 511 must be even for sinusoidal positions"),
        ("data.vocabulary.shared", False, "'model.tie' = 'all' needs 'data.vocabulary.shared' ="),
        ("model.max_length", 100, "'data.filter.max_length' = 256 must be at most 'model"),
        ("data.filter.max_ratio", 0.5, "'data.filter.max_ratio' = 0.5 must be 0 (off) or at least"),
        ("data.filter.max_character_ratio", 0.5, "ratio' = 0.5 must be 0 (off) or at least"),
        ("data.vocabulary.character_coverage", 0, "character_coverage' = 0.0 must lie in (0, 1]"),
        ("data.vocabulary", {"tgt_types": "words"}, "'data.vocabulary.tgt_types' = 'words' needs"),
        ("data.vocabulary", {"model": "a", "shared": False}, "'data.vocabulary.model' needs"),
        ("data.vocabulary", {"model": "a", "src_model": "b"}, "leave out .src_model and .tgt_mod"),
        ("data.vocabulary", {"src_model": "a", "shared": False}, "'data.vocabulary.src_model' nee"),
        ("data.vocabulary", {"tgt_model": "a", "shared": False}, "'data.vocabulary.tgt_model' nee"),
        (
            "data.vocabulary",
            {"src_model": "a", "tgt_model": "b"},
            "'data.vocabulary.src_model' needs 'data.vocabulary.shared' = false, or '.joint_types'",
        ),
        ("data.vocabulary", {"joint_types": "a"}, "needs '.src_model' and '.tgt_model'"),
        (
            "data.vocabulary",
            {"src_model": "a", "tgt_model": "b", "joint_types": "c", "shared": False},
            "'data.vocabulary.joint_types' needs 'data.vocabulary.shared' = true",
        ),
        (
            "data.vocabulary",
            {"model": "a", "split_digits": True},
            "'data.vocabulary.split_digits' is",
        ),
        ("data.vocabulary", {"tgt_size": 100}, "'data.vocabulary.tgt_size' needs"),
        ("data.vocabulary", {"tgt_size": 3, "shared": False}, "must be at least 5"),
        ("data.vocabulary", {"symbols": ["a b"]}, "'a b' must be text without blanks"),
        ("data.vocabulary", {"symbols": ["</s>"]}, "</s> is a mark or a byte of vocabularies"),
        ("data.vocabulary", {"tgt_words": ["a"]}, "needs '.tgt_types' = 'words'"),
        ("data.vocabulary", {"tgt_types": "brackets"}, "needs 'data.vocabulary.byte_fallback'"),
        ("data.vocabulary", {**OF_WORDS, "tgt_words": ["a b"]}, "'a b' is not one word"),
        ("data.vocabulary", {**OF_WORDS, "tgt_words": [""]}, "'' is not one word"),
        ("training.optimizer.accumulation", 3, "'data.batch.multiple' = 8 must be divisible by"),
        ("training.validate_bleu", False, "'training.best_metric' = 'bleu' needs 'training.valid"),
        ("mesh.tensor", -1, "only one of 'mesh.data', 'mesh.fsdp', 'mesh.tensor' may be -1"),
        ("mesh.fsdp", 0, "'mesh.fsdp' = 0 must be at least 1, or -1 for all remaining devices"),
        (
            "data",
            {"valid_fraction": 0.1, "train": {"a": {}, "b": {}}, "valid": {"src": "x", "tgt": "y"}},
            "but 'data.valid' is set too; 'data.valid_fraction' = 0.1 splits one corpus, but",
        ),
        ("data.train.a.src", "one", "'data.train.a': a corpus of kind 'files' needs both 'src'"),
        ("data.test.a.kind", "synthetic", "'data.test.a.size' must be at least 1 for the built-in"),
        ("data.test", {"a.b": {}}, "'data.test.a.b': a corpus's name may have letters, digits"),
        ("data.train", {"": {}}, "'data.train.': a corpus's name may have letters"),
    ],
)
def test_contradictions_are_named(key, value, wanted):
    assert wanted in message(nested(key, value))


def test_every_contradiction_is_reported_at_once():
    said = message({"model": {"num_heads": 0, "dropout": 2.0}, "mesh": {"fsdp": 0}})
    assert said.count("must") == 3
