"""Kind `hf`: two-column parquet files in the Hugging Face hub's format, local or downloaded."""

import dataclasses
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import NO_TEXT, CorpusError, Defect, defect_of_sides
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.files import hub

HUB = "hf://datasets/"
_ROWS = 4096  # that are taken from a file at a time
_BUFFER = 1 << 20  # bytes of each column: a file of one group of rows would be read whole


@dataclasses.dataclass(frozen=True)
class ParquetRecords:
    """Files read one after the other; record n counts their rows.

    `src` and `tgt` are columns of text; a dot leads into a struct: "translation.en".
    """

    files: Mapping[str, AnyPath]
    label: str
    """What found the files."""
    src: str
    tgt: str

    def records(self) -> Iterator[tuple[bytes, ...]]:
        """The two sentences, or one column that says which one is null."""
        keys = self.src, self.tgt
        for path in self.files.values():
            for pair in _rows(path, keys):
                null = [key for key, text in zip(keys, pair, strict=True) if text is None]
                yield (f"{null[0]!r} is null".encode(),) if null else pair

    def check(self, columns: tuple[bytes, ...]) -> Defect | None:
        if len(columns) != 2:
            return Defect(self.label, NO_TEXT, columns[0].decode("utf-8"))
        return defect_of_sides(columns, (self.label, self.label), where=" of the {side} text")


def open_files(corpus: CorpusConfig, folder: str, key: str, *, fetch: bool) -> ParquetRecords:
    """The files that a corpus of kind `hf` names: a pattern here or in a bucket, or on the hub.

    Without `fetch`, those of the hub must have been fetched before. Raises CorpusError.
    """
    if corpus.path.startswith(HUB):
        found = _of_hub(corpus.path, f"{key}.path", fetch=fetch)
    else:
        found = paths.require_matches(corpus.path, folder, f"{key}.path")
    files = {f"path[{number}]": path for number, path in enumerate(found)}
    return ParquetRecords(files, corpus.path, corpus.src, corpus.tgt)


def _of_hub(path: str, key: str, *, fetch: bool) -> tuple[AnyPath, ...]:
    """Local copies of hf://datasets/ORG/NAME[@REVISION]/PATTERN."""
    parts = re.fullmatch("([^/]+/[^/]+)/(.+)", path.removeprefix(HUB))
    # A branch may have slashes in its name, which an address writes as %2F.
    repository = parts and hub.address(urllib.parse.unquote(parts[1]))
    if parts is None or repository is None:
        raise CorpusError(f"{key}: {path}: write {HUB}ORG/NAME/PATTERN or ORG/NAME@REVISION")
    try:
        folder = hub.fetch(repository, [parts[2]], kind="dataset", download=fetch)
    except hub.HubError as error:
        raise CorpusError(f"{key}: {error}") from error
    if not (found := sorted(each for each in folder.glob(parts[2]) if each.is_file())):
        raise CorpusError(f"{key}: dataset {repository} has no file that matches {parts[2]}")
    return tuple(found)


def _rows(path: AnyPath, keys: tuple[str, str]) -> Iterator[Any]:
    """Each row's texts in bytes, None for null. Raises CorpusError."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        with (
            paths.open_binary(path) as stream,
            pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False) as file,
        ):
            places = [_place(file.schema_arrow, key, path) for key in keys]
            for batch in file.iter_batches(_ROWS, columns=[".".join(place) for place in places]):
                src, tgt = (
                    pc.struct_field(batch.to_struct_array(), place).cast(pa.large_binary())
                    for place in places
                )
                yield from zip(src.to_pylist(), tgt.to_pylist(), strict=True)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(
            f"{path}: cannot be read as parquet: {error}; download or write it again"
        ) from error


def _place(schema: Any, key: str, path: AnyPath) -> list[str]:
    """The names that lead from the columns to a text. Raises CorpusError."""
    import pyarrow as pa

    names = [key] if key in schema.names else key.split(".")
    kind, fields = None, list(schema)
    for name in names:
        if name not in (present := {field.name: field.type for field in fields}):
            raise CorpusError(
                f"{path}: has no column {key!r}; there: {', '.join(map(repr, present)) or 'none'}"
            )
        kind = present[name]
        fields = kind.fields if pa.types.is_struct(kind) else []
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        within = "".join(f"; use {key}.{field.name} or similar" for field in fields[:1])
        raise CorpusError(f"{path}: column {key!r} holds {kind}, not text{within}")
    return names
