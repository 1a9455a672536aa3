from __future__ import annotations

from pathlib import Path

import pytest

from flaxformer_mt.config.schema import (
    CorpusConfig,
    DataConfig,
    FilterConfig,
    VocabularyConfig,
)
from tests.data.prepare.good_corpus import GOOD


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    """A corpus in tmp_path/text of 24 good pairs, and one of the first four for validation."""
    text = tmp_path / "text"
    text.mkdir()
    for name, pairs in (("train", GOOD), ("valid", GOOD[:4])):
        for side, lang in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            (text / f"{name}.{lang}").write_text(lines, "utf-8")
    return DataConfig(
        folder=str(text),
        train=(CorpusConfig(name="good", src="train.en", tgt="train.de"),),
        valid=CorpusConfig(src="valid.en", tgt="valid.de"),
        vocabulary=VocabularyConfig(size=60),
        filter=FilterConfig(max_length=40),
    )
