"""The processes of `decoding_speed`: each loads its model and decodes whenever it is told a beam.

Each tries a few batch sizes first and keeps the quickest: a runtime is measured at its best.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import flax.linen as nn
import jax
import numpy as np

from benchmarks.decoding_speed import OUTPUT, VOCAB, Work, likely, sources
from flaxformer_mt.config import DecodingConfig, ModelConfig
from flaxformer_mt.data.shortlist import Shortlist
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.batches import Decoder
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.parameters import initial_params

Decode = Callable[[int, int], int]  # beam and batch size to tokens


def main(name: str, workdir: Path, work: Work) -> int:
    if name.startswith("ctranslate2_"):
        decode = ctranslate2(workdir, name.removeprefix("ctranslate2_"), work)
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
    model, params = model_and_params("bfloat16" if "bfloat16" in name else "float32", work.layers)
    shortlist = None
    if name.endswith("_shortlist"):
        shortlist = Shortlist(likely(), np.arange(VOCAB, dtype=np.int32), "")
    ids = [[*source, EOS] for source in sources(work.sentences)]
    longest = 64  # the power of two above the longest source

    def decode(beam: int, batch: int) -> int:
        config = DecodingConfig(
            beam_size=beam,
            max_ratio=0.0,
            max_extra_tokens=OUTPUT,
            batch_tokens=batch * beam * longest,
        )
        decoded = Decoder((params,), (model,), config, shortlist=shortlist).decode(ids)
        return sum(len(hypotheses[0].tokens) + 1 for hypotheses in decoded)

    return decode


def ctranslate2(workdir: Path, compute_type: str, work: Work) -> Decode:
    ctranslate2 = importlib.import_module("ctranslate2")

    from flaxformer_mt.interop.ctranslate2 import write

    folder = workdir / "ctranslate2"
    pieces = ["<pad>", "<s>", "</s>", "<unk>", *(f"t{number}" for number in range(4, VOCAB))]
    if not (folder / "model.bin").exists():
        model, params = model_and_params("float32", work.layers)
        side = SimpleNamespace(
            pieces=lambda ids=None: pieces if ids is None else [pieces[i] for i in ids],
            model=b"",
            table=None,
        )
        folder.mkdir(parents=True, exist_ok=True)
        stand_in = SimpleNamespace(
            model=model,
            params=params,
            vocabularies=SimpleNamespace(src=side, tgt=side),
            config=DecodingConfig(),
        )
        write(stand_in, folder, quantization="float32")  # type: ignore[arg-type]
        # Fields: a source piece and its candidates; none of them stands for candidates of all.
        (folder / "vmap.txt").write_text(
            "".join(
                f"{piece}\t{' '.join(pieces[each] for each in row)}\n"
                for piece, row in zip(pieces, likely(), strict=True)
            )
        )
    translator = ctranslate2.Translator(
        str(folder),
        compute_type=compute_type.removesuffix("_vmap"),
        inter_threads=1,
        intra_threads=len(os.sched_getaffinity(0)),
    )
    words = [[pieces[token] for token in source] for source in sources(work.sentences)]

    def decode(beam: int, batch: int) -> int:
        results = translator.translate_batch(
            words,
            beam_size=beam,
            max_batch_size=batch,
            use_vmap=compute_type.endswith("_vmap"),
            min_decoding_length=OUTPUT,
            max_decoding_length=OUTPUT,
        )
        return sum(len(result.hypotheses[0]) for result in results)

    return decode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Work(**json.loads(sys.argv[3]))))
