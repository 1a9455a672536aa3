from __future__ import annotations

from pathlib import Path

import pytest

from flaxformer_mt.config.schema import (
    CorpusConfig,
    DataConfig,
    FilterConfig,
    VocabularyConfig,
)
from tests.data.prepare.corpora import GOOD, write


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    """A corpus in tmp_path/text of 24 good pairs, and one of the first four for validation."""
    text = tmp_path / "text"
    for name, pairs in (("train", GOOD), ("valid", GOOD[:4])):
        write(text, name, [(src.encode(), tgt.encode()) for src, tgt in pairs])
    return DataConfig(
        folder=str(text),
        train=(CorpusConfig(name="good", src="train.en", tgt="train.de"),),
        valid=CorpusConfig(src="valid.en", tgt="valid.de"),
        vocabulary=VocabularyConfig(size=60),
        filter=FilterConfig(max_length=40),
    )
