"""`prepare` and files that are damaged, exchanged or changing."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.config.schema import (
    DataConfig,
    FilterConfig,
    VocabularyConfig,
)
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.data.prepare import (
    PrepareError,
    fill,
    inputs,
    prepare,
    valid_text,
)
from flaxformer_mt.data.store import StoreError
from tests.data.prepare.good_corpus import with_


def test_damage_is_refused_by_name(config: DataConfig, tmp_path: Path) -> None:
    run = tmp_path / "run"
    prepare(config, seed=1, directory=run)
    text, manifest = run / "data" / "valid.tgt.txt", run / "data" / "manifest.json"
    whole, recorded = text.read_bytes(), manifest.read_text()
    text.write_bytes(whole.replace(b"a", b"o", 1))
    with pytest.raises(StoreError, match=r"data: valid.src.txt or valid\.tgt\.txt is not the text"):
        valid_text(run / "data")
    manifest.write_text(json.dumps({**json.loads(recorded), "valid_text": 7}))
    with pytest.raises(StoreError, match="is not the text"):
        valid_text(run / "data")
    early = json.loads(recorded)
    del early["valid_text"]
    manifest.write_text(json.dumps(early))
    assert len(valid_text(run / "data")[1]) == 4
    text.write_bytes(b"\xff\n")
    with pytest.raises(StoreError, match="is not the text"):
        valid_text(run / "data")
    text.write_bytes(whole)
    manifest.write_text(recorded)

    other = with_(config, vocabulary=VocabularyConfig(size=50))
    prepare(other, seed=1, directory=tmp_path / "other")
    shutil.rmtree(run / "vocabulary")
    shutil.copytree(tmp_path / "other" / "vocabulary", run / "vocabulary")
    with pytest.raises(PrepareError, match="vocabulary: is not the vocabulary with which"):
        prepare(config, seed=1, directory=run)

    (run / "data" / "manifest.json").write_text("{")
    with pytest.raises(PrepareError, match=r"manifest\.json:1: is not JSON"):
        prepare(config, seed=1, directory=run)
    (run / "data" / "manifest.json").unlink()
    with pytest.raises(PrepareError, match=r"holds files but no manifest\.json"):
        prepare(config, seed=1, directory=run)


def test_a_store_of_another_run_is_refused(config: DataConfig, tmp_path: Path) -> None:
    prepare(config, seed=1, directory=tmp_path / "a")
    longer = with_(config, filter=FilterConfig(max_length=15))
    prepare(longer, seed=1, directory=tmp_path / "b")
    manifest = tmp_path / "a" / "data" / "manifest.json"
    kept = manifest.read_bytes()
    shutil.rmtree(tmp_path / "a" / "data")
    shutil.copytree(tmp_path / "b" / "data", tmp_path / "a" / "data")
    manifest.write_bytes(kept)
    with pytest.raises(PrepareError, match=r"store\.json: is not the store that manifest\.json"):
        prepare(config, seed=1, directory=tmp_path / "a")


def test_a_file_that_changes_meanwhile_is_an_error(
    config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fill.StoreWriter.finish

    def touch_and_finish(self: Any) -> str:
        os.utime(tmp_path / "text" / "train.en", ns=(1, 1))
        return real(self)

    monkeypatch.setattr(fill.StoreWriter, "finish", touch_and_finish)
    with pytest.raises(CorpusError, match=r"train\.en: changed while it was being read"):
        prepare(config, seed=1, directory=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["data.partial"]


def test_a_file_that_fails_while_it_is_digested_is_named(
    config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    whole = inputs.paths.open_binary

    def opened(path: Path) -> Any:
        return Failing() if path.name == "train.en" else whole(path)

    monkeypatch.setattr(inputs.paths, "open_binary", opened)
    with pytest.raises(CorpusError, match=r"^.*/train\.en: cannot be read: Input/output error$"):
        prepare(config, seed=1, directory=tmp_path / "run")
