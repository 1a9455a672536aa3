"""Small TFDS translation sets, and stand-ins for the archives that WMT14 is made from."""

import io
import tarfile
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

PAIRS = {
    split: [(f"{split} Satz {i} äöü", f"{split} sentence {i}") for i in range(count)]
    for split, count in {"train": 100, "test": 10}.items()
}
"""German and English, by split."""


class TinyTranslate(tfds.core.GeneratorBasedBuilder):
    """Keys in the order de, en, as WMT14's: English to German is against it."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> Any:
        features = tfds.features.Translation(languages=("de", "en"))
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> Any:
        return {split: self._generate_examples(split) for split in PAIRS}

    def _generate_examples(self, split: str) -> Any:
        for number, (de, en) in enumerate(PAIRS[split]):
            yield number, {"de": de, "en": en}


class FetchedTranslate(TinyTranslate):
    """One archive, of which TFDS knows no digest; its address is set by the test."""

    url = ""

    def _split_generators(self, dl_manager: Any) -> Any:
        folder = dl_manager.download_and_extract(self.url)
        return {"train": self._generate_examples(folder)}

    def _generate_examples(self, folder: Any) -> Any:
        sides = [(folder / f"text.{language}").read_text().split() for language in ("de", "en")]
        for number, (de, en) in enumerate(zip(*sides, strict=True)):
            yield number, {"de": de, "en": en}


def prepare_tiny(data_dir: Path) -> Path:
    """The folder of the prepared set, several shards a split."""
    builder = TinyTranslate(data_dir=str(data_dir), file_format="array_record")
    config = tfds.download.DownloadConfig(try_download_gcs=False, num_shards=3)
    builder.download_and_prepare(download_config=config)
    return Path(builder.data_dir)


def write_tgz(path: Path, files: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _both(path: str, tag: str, count: int) -> dict[str, str]:
    return {
        f"{path}.{language}": "".join(f"{tag} {language} {i}\n" for i in range(count))
        for language in ("de", "en")
    }


def write_wmt14(folder: Path) -> None:
    """What WMT14 German-English is made of, in small: 5 + 4 + 3 pairs, 2 and 3 to test with."""

    def sgm(tag: str) -> str:
        segments = "".join(f'<seg id="{i + 1}">{tag} {i}</seg>\n' for i in range(3))
        return f"<refset>\n{segments}</refset>\n"

    archives = {
        "training-parallel-europarl-v7": _both("training/europarl-v7.de-en", "europarl", 5),
        "training-parallel-commoncrawl": _both("commoncrawl.de-en", "crawl", 4),
        "training-parallel-nc-v9": _both("training/news-commentary-v9.de-en", "news", 3),
        "dev": _both("dev/newstest2013", "2013", 2),
    }
    archives["dev"]["dev/newstest2014-deen-src.de.sgm"] = sgm("2014 de")
    archives["dev"]["dev/newstest2014-deen-ref.en.sgm"] = sgm("2014 en")
    for name, files in archives.items():
        write_tgz(folder / f"{name}.tgz", files)
