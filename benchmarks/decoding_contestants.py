"""The processes of `decoding_speed`: each loads its model and decodes for each beam size it reads.

Each tries a few batch sizes first and keeps the quickest: a runtime is measured at its best.
"""

import dataclasses
import fcntl
import functools
import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import flax.linen as nn
import jax
import numpy as np

from benchmarks.decoding_speed import OUTPUT, RUNTIMES, VOCAB, Work, likely, sources
from flaxformer_mt.config import DecodingConfig, ModelConfig
from flaxformer_mt.data.shortlist import Shortlist
from flaxformer_mt.data.vocabulary import EOS, UNK
from flaxformer_mt.decoding.options import SearchOptions
from flaxformer_mt.decoding.run.decoder import BatchDecoder
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.interop.ctranslate2_search import ctranslate2_runtime
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.parameters import initial_params

Decode = Callable[[int, int], int]  # beam and batch size to tokens


def main(name: str, workdir: Path, work: Work) -> int:
    if name.startswith("ctranslate2_"):
        decode = ctranslate2(workdir, name.removeprefix("ctranslate2_"), work)
    elif name in RUNTIMES:
        decode = by_runtime(name.removeprefix("runtime_"), work)
    else:
        decode = ours(name, work)
    best: dict[int, int] = {}
    for line in sys.stdin:
        beam = int(line)
        if beam not in best:
            for batch in work.batches:
                decode(beam, batch)
            best[beam] = min(work.batches, key=lambda batch: timed(decode, beam, batch)[1])
        tokens, seconds = timed(decode, beam, best[beam])
        print(json.dumps({"tokens": tokens, "seconds": seconds, "batch": best[beam]}), flush=True)
    return 0


def timed(decode: Decode, beam: int, batch: int) -> tuple[int, float]:
    start = time.perf_counter()
    return decode(beam, batch), time.perf_counter() - start


def model_and_params(
    dtype: Literal["float32", "bfloat16"], layers: int
) -> tuple[Transformer, dict[str, object]]:
    config = ModelConfig(dropout=0.0, dtype=dtype, encoder_layers=layers, decoder_layers=layers)
    model = Transformer(config, VOCAB, VOCAB)
    return model, nn.unbox(initial_params(model, jax.random.key(0)))


def ours(name: str, work: Work) -> Decode:
    dtype: Literal["float32", "bfloat16"] = "bfloat16" if "bfloat16" in name else "float32"
    with_shortlist = name.endswith("_shortlist")
    if work.run:
        run = Translator.load(work.run, shortlist=with_shortlist).with_dtype(dtype)
        model, params, shortlist = run.model, run.params, run.shortlist
        usual = dataclasses.replace(run.config, patience=1.0, ends_among="beam")
        ids = [[*line, EOS] for line in lines_of(work, run)]
    else:
        model, params = model_and_params(dtype, work.layers)
        types = np.arange(VOCAB, dtype=np.int32)
        shortlist = Shortlist(likely(), types, "") if with_shortlist else None
        usual = DecodingConfig(max_ratio=0.0, max_extra_tokens=OUTPUT)
        ids = [[*source, EOS] for source in sources(work.sentences)]
    longest = 1 << (max(map(len, ids)) - 1).bit_length()  # as a power of two

    def decode(beam: int, batch: int) -> int:
        config = dataclasses.replace(usual, beam_size=beam, batch_tokens=batch * beam * longest)
        decoder = BatchDecoder((params,), (model,), config, shortlist=shortlist)
        decoded = decoder.decode([Source(line, (n, 0)) for n, line in enumerate(ids)])
        return sum(len(hypotheses[0].tokens) + 1 for hypotheses in decoded)

    return decode


def by_runtime(quantization: str, work: Work) -> Decode:
    run = Translator.load(work.run)
    runtime = ctranslate2_runtime(run, quantization=quantization)
    sources = [Source([*line, EOS], (n, 0)) for n, line in enumerate(lines_of(work, run))]

    def decode(beam: int, batch: int) -> int:
        config = dataclasses.replace(run.config, beam_size=beam, patience=1.0)
        search = runtime.search(config, SearchOptions(), suppress=(UNK,), text_of=hash)
        decoded = search.decode(sources)
        return sum(len(hypotheses[0].tokens) + 1 for hypotheses in decoded)

    return decode


def lines_of(work: Work, run: Translator) -> list[list[int]]:
    """Token ids without an end mark."""
    lines = Path(work.input).read_text("utf-8").splitlines()[: work.sentences]
    return run.vocabularies.src.encode(lines)


def ctranslate2(workdir: Path, compute_type: str, work: Work) -> Decode:
    ctranslate2 = importlib.import_module("ctranslate2")

    from flaxformer_mt.interop.ctranslate2 import write

    folder = workdir / f"ctranslate2_{work.layers}"
    search: dict[str, Any] = {}
    if work.run:
        run = Translator.load(work.run)
        weights = f"{work.run} {run.name}".encode()
        folder = workdir / f"ctranslate2_{hashlib.sha256(weights).hexdigest()[:12]}"
        made_once(
            folder, lambda place: write(run.with_dtype("float32"), place, quantization="float32")
        )
        words = [run.vocabularies.src.pieces(line) for line in lines_of(work, run)]
    else:
        words = random_weights(folder, work)
        search = {"min_decoding_length": OUTPUT, "max_decoding_length": OUTPUT}
    cores = len(os.sched_getaffinity(0))
    # One batch at a time on all cores, or a batch on each.
    forms = [
        ctranslate2.Translator(
            str(folder),
            compute_type=compute_type.removesuffix("_vmap"),
            inter_threads=at_once,
            intra_threads=cores // at_once,
        )
        for at_once in sorted({1, cores})
    ]

    def decode_by(form: Any, beam: int, batch: int) -> int:
        results = form.translate_batch(
            words,
            beam_size=beam,
            max_batch_size=batch,
            max_input_length=0,
            use_vmap=compute_type.endswith("_vmap"),
            **search,
        )
        # A translation that ends has an end mark besides.
        return sum(len(result.hypotheses[0]) + (not search) for result in results)

    return quickest([functools.partial(decode_by, form) for form in forms])


def quickest(ways: Sequence[Decode]) -> Decode:
    """The quickest of several ways for each beam and batch size, which the first call finds out."""
    chosen: dict[tuple[int, int], Decode] = {}

    def decode(beam: int, batch: int) -> int:
        sizes = beam, batch
        if sizes not in chosen:
            for way in ways:
                way(beam, batch)  # allocates
            chosen[sizes] = min(ways, key=lambda way: timed(way, beam, batch)[1])
        return chosen[sizes](beam, batch)

    return decode


def made_once(folder: Path, fill: Callable[[Path], None]) -> None:
    """A folder that one of the contestants, which start together, fills while the others wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return
        with replacing(folder) as place:
            place.mkdir()
            fill(place)


def random_weights(folder: Path, work: Work) -> list[list[str]]:
    """CTranslate2's folder of `model_and_params`, and the sources' pieces."""
    from flaxformer_mt.interop.ctranslate2 import write

    pieces = ["<pad>", "<s>", "</s>", "<unk>", *(f"t{number}" for number in range(4, VOCAB))]

    def fill(place: Path) -> None:
        model, params = model_and_params("float32", work.layers)
        side = SimpleNamespace(
            pieces=lambda ids=None: pieces if ids is None else [pieces[i] for i in ids],
            model=b"",
            language_codes=[],
            added_tokens=(),
        )
        stand_in = SimpleNamespace(
            model=model,
            params=params,
            vocabularies=SimpleNamespace(src=side, tgt=side),
            config=DecodingConfig(),
        )
        write(stand_in, place, quantization="float32")  # type: ignore[arg-type]
        # A line has a source piece and its candidates; no line has candidates for all sources.
        (place / "vmap.txt").write_text(
            "".join(
                f"{piece}\t{' '.join(pieces[candidate] for candidate in candidates)}\n"
                for piece, candidates in zip(pieces, likely(), strict=True)
            )
        )

    made_once(folder, fill)
    return [[pieces[token] for token in source] for source in sources(work.sentences)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Work(**json.loads(sys.argv[3]))))
