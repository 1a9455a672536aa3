"""`quickstart --write-text`: the built-in corpus as files, which `train` then reads like any."""

from flaxformer_mt.grammar.text import pairs

SIZES = ("--config.data.train.grammar.size=30", "--config.data.valid.size=20")


def test_files_hold_what_the_built_in_corpora_hold(run, tmp_path):
    folder = tmp_path / "new" / "text"
    done = run("quickstart", "--write-text", folder, *SIZES)
    assert done.status == 0 and done.output == ""
    assert f"{folder / 'train.en'} and {folder / 'train.de'}: 30 sentence pairs" in done.errors
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{split}.{language}" for split in ("train", "valid", "test") for language in ("en", "de")
    )
    for split, size in (("train", 30), ("valid", 20), ("test", 500)):
        files = [folder / f"{split}.{language}" for language in ("en", "de")]
        lines = [path.read_text(encoding="utf-8").splitlines() for path in files]
        assert list(zip(*lines, strict=True)) == list(pairs(split, size))


def test_no_file_is_overwritten(run, tmp_path):
    (tmp_path / "valid.de").write_text("mine")
    done = run("quickstart", "--write-text", tmp_path, *SIZES)
    assert done.status == 2 and f"{tmp_path / 'valid.de'} already exists: choose" in done.last
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
