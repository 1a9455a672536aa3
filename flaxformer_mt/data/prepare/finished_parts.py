"""A cluster's finished work, kept in files so that the next call does only what is missing.

The caller writes them: it gets all results anyway, and workers need not reach the run directory.
"""

import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from flaxformer_mt.data.corpus import Defect, Drops
from flaxformer_mt.data.corpus.paths import reaching
from flaxformer_mt.data.prepare.encode import Encoded, KeptTokens, Range, Sifted, UnknownText
from flaxformer_mt.data.processes import mapped
from flaxformer_mt.data.vocabulary import Vocabularies, Vocabulary
from flaxformer_mt.files.atomic import write_whole
from flaxformer_mt.files.reading import AnyPath

_FORMAT = 3  # 2: without weights; 1: without unknown text
_THREADS = 8  # a bucket takes its time
# The arrays of a chunk by their types. No integer is negative: they are kept in smaller types.
_TOKEN_KINDS = {
    **dict.fromkeys(("src", "src_lengths", "tgt", "tgt_lengths"), np.int32),
    **dict.fromkeys(("hashes", "bands"), np.uint64),
    "weights": np.float32,
}

Arrays = dict[str, np.ndarray]
Trained = tuple[Vocabularies, int, list[int]]  # as `train_vocabulary` returns
Work = Callable[[Iterable[Range]], Iterable[tuple[Range, list[Encoded]]]]


class FinishedParts:
    """A folder, here or in a bucket, of files that are named by a digest of all that decides them.

    Each begins with a digest of its name and contents, without which it isn't used.
    """

    def __init__(self, folder: AnyPath, made_from: Any) -> None:
        """All parts depend on `made_from`, which is JSON. Raises CorpusError."""
        self._folder = folder
        self._made_from = made_from
        self.used = set[str]()
        with reaching(folder):
            self._names = {path.name for path in folder.iterdir()} if folder.exists() else set()

    def vocabulary(self, train: Callable[[], Trained]) -> Trained:
        """The result of `train`, by an earlier call or this one.

        Raises as `train` does; OSError; CorpusError for a bucket.
        """
        arrays = self._find("vocabulary")
        if arrays is None:
            vocabularies, sample, records = train()
            models = {"src": vocabularies.src.model, "tgt": vocabularies.tgt.model}
            arrays = {side: np.frombuffer(model, np.uint8) for side, model in models.items()}
            arrays["counts"] = np.array([sample, *records])
            self._put(arrays, "vocabulary")
        src, tgt = (Vocabulary(arrays[side].tobytes()) for side in ("src", "tgt"))
        sample, *records = arrays["counts"].tolist()
        return Vocabularies(src, src if src == tgt else tgt), sample, records

    def encoded(
        self, corpus: Sequence[Any], ranges: Iterable[Range], work: Work
    ) -> Iterator[list[Encoded]]:
        """The encoded chunks of each range, in order; `work` encodes missing ones.

        `corpus`, which is JSON, identifies the corpus and its vocabulary. Raises as `vocabulary`
        does.
        """

        def find(part: Range) -> tuple[Range, Arrays | None]:
            return part, self._find(*corpus, part.first, part.stop)

        def put(done: tuple[Range, list[Encoded]]) -> list[Encoded]:
            part, chunks = done
            self._put(_to_arrays(chunks), *corpus, part.first, part.stop)
            return chunks

        with ThreadPoolExecutor(_THREADS) as pool:
            looked_up = mapped(lambda part: pool.submit(find, part), ranges, ahead=_THREADS)
            for missing, group in itertools.groupby(looked_up, lambda pair: pair[1] is None):
                if missing:
                    done = work(part for part, _ in group)
                    yield from mapped(lambda part: pool.submit(put, part), done, ahead=_THREADS)
                else:
                    yield from (list(_from_arrays(arrays)) for _, arrays in group if arrays)

    def _find(self, *decided: Any) -> Arrays | None:
        name = self._name(decided)
        if name not in self._names:
            return None
        with reaching(self._folder):
            content = (self._folder / name).read_bytes()
        if content[:32] != _digest(name, content[32:]):
            return None
        self.used.add(name)
        return dict(np.load(io.BytesIO(content[32:])))

    def _put(self, arrays: Arrays, *decided: Any) -> None:
        name = self._name(decided)
        file = io.BytesIO()
        np.savez(file, **arrays)  # type: ignore[arg-type]
        content = _digest(name, file.getvalue()) + file.getvalue()
        path = self._folder / name
        if isinstance(path, Path):
            path.parent.mkdir(exist_ok=True)
            write_whole(path, content)
        else:
            with reaching(path):
                path.write_bytes(content)

    def _name(self, decided: Sequence[Any]) -> str:
        text = json.dumps([_FORMAT, self._made_from, decided], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + content).digest()


def _to_arrays(chunks: Sequence[Encoded]) -> Arrays:
    """The chunks' arrays, numbered, and in one more everything else, as JSON."""
    arrays = Arrays()
    others = list[Any]()
    for number, chunk in enumerate(chunks):
        sifted = chunk.sifted
        named = {name: getattr(chunk.tokens, name) for name in _TOKEN_KINDS}
        for name, array in {**named, "mask": sifted.mask}.items():
            smallest = np.min_scalar_type(array.max(initial=0))
            arrays[f"{name}{number}"] = array if name == "weights" else array.astype(smallest)
        source = sifted.read, sifted.size, sifted.first_line, sifted.label
        text = [side.decode() for side in chunk.text]
        drops, overlap = (
            (noted.counts, noted.examples) for noted in (sifted.drops, sifted.overlap)
        )
        others.append((*source, text, drops, overlap, chunk.unknowns))
    return arrays | {"others": np.frombuffer(json.dumps(others).encode(), np.uint8)}


def _from_arrays(arrays: Arrays) -> Iterator[Encoded]:
    others = json.loads(arrays["others"].tobytes())
    for number, fields in enumerate(others):
        read, size, first_line, label, (src, tgt), *noted, unknowns = fields
        mask = arrays[f"mask{number}"].astype(np.bool_)
        drops, overlap = (
            Drops(counts, [Defect(*example) for example in examples]) for counts, examples in noted
        )
        tokens = KeptTokens(
            **{name: arrays[f"{name}{number}"].astype(kind) for name, kind in _TOKEN_KINDS.items()}
        )
        yield Encoded(
            Sifted(read, size, first_line, label, mask, drops, overlap),
            tokens,
            text=(src.encode(), tgt.encode()),
            unknowns=[UnknownText(*unknown) for unknown in unknowns],
        )
