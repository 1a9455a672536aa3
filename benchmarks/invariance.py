"""Whether a sentence's translation depends on its neighbours, in float32 and in bfloat16.

python -m benchmarks.invariance --workdir RUN --src FILE [--sentences N]

The same sentences are translated each by itself and in batches of three sizes. Counted are those
whose output changes, and of these the near-ties: both outputs' scores within 1e-5 of each other.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import Literal

from benchmarks import RESULTS
from flaxformer_mt.config import CorpusConfig, freeze
from flaxformer_mt.data.corpus import read_pairs
from flaxformer_mt.decoding.text.translation import Translation
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import open_run, read_record

TIE = 1e-5
DTYPES: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
ALONE, BATCHES = 1, (512, 4096, 32768)  # source positions times beams


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.invariance")
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a trained run directory")
    parser.add_argument("--src", required=True, metavar="FILE", help="source lines")
    parser.add_argument("--sentences", type=int, default=1000, metavar="N")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    run = open_run(options.workdir)
    config = freeze(read_record(run).config, str(run.config_file))
    corpus = CorpusConfig(kind="files", src=options.src, tgt=options.src)
    pairs = list(read_pairs(corpus, "", key="--src"))[: options.sentences]
    lines = [pair.src for pair in pairs]
    metrics: dict[str, float] = {"sentences": len(lines)}
    loaded = Translator.load(run.path)
    alone: dict[str, list[Translation]] = {}
    for dtype in DTYPES:
        translator = loaded.with_dtype(dtype)
        alone[dtype] = translated(translator, lines, ALONE)
        for size in BATCHES:
            among = translated(translator, lines, size)
            metrics |= differences(f"{dtype}_batches_of_{size}", alone[dtype], among)
            print(json.dumps(metrics, indent=2), file=sys.stderr)
    metrics |= differences("bfloat16_against_float32", alone["float32"], alone["bfloat16"])
    write_result(
        RESULTS / "invariance.json",
        command="python -m benchmarks.invariance --workdir RUN --src FILE",
        config=config.name,
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures={},
    )
    print(json.dumps(metrics, indent=2))
    return 0


def translated(
    translator: Translator, lines: Sequence[str], batch_tokens: int
) -> list[Translation]:
    config = dataclasses.replace(translator.config, batch_tokens=batch_tokens)
    return translator.with_config(**dataclasses.asdict(config)).translate(lines)


def differences(
    name: str, one: Sequence[Translation], other: Sequence[Translation]
) -> dict[str, float]:
    """How many outputs differ, how many of them by a near-tie, and the largest difference between
    scores of equal outputs."""
    pairs = list(zip(one, other, strict=True))
    changed = [(a, b) for a, b in pairs if a.tokens != b.tokens]
    equal = [(a, b) for a, b in pairs if a.tokens == b.tokens]
    return {
        f"{name}_changed": len(changed),
        f"{name}_near_ties": sum(abs(a.score - b.score) <= TIE for a, b in changed),
        f"{name}_largest_score_difference": max(
            (abs(a.score - b.score) for a, b in equal), default=0.0
        ),
    }


if __name__ == "__main__":
    sys.exit(main())
