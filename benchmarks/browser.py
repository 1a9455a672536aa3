"""A run's translations in Bergamot, the engine for browsers, in Node, compared with ours.

python -m benchmarks.browser --workdir RUN --src FILE --ref FILE --engine FOLDER

The run is exported in float32 and in int8. Both folders translate the lines greedily by their own
`translate.mjs`, and so does this program in float32: `lines_equal_share` is the share of equal
lines, `bleu_lost` our BLEU minus theirs, of the form that `computes` names. FOLDER is where `npm
install --prefix FOLDER @browsermt/bergamot-translator@0.4.9` was run.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.arguments import positive
from benchmarks.interop import read_test
from flaxformer_mt.config import freeze
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.scoring import scoring_of
from flaxformer_mt.interop import QUANTIZED
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.parity import Reference, sample_lines
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import open_run, read_record


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.browser")
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a trained run directory")
    parser.add_argument("--src", required=True, metavar="FILE", help="source lines of a test set")
    parser.add_argument("--ref", required=True, metavar="FILE", help="its reference translations")
    parser.add_argument("--engine", required=True, metavar="FOLDER", help="it has node_modules/")
    parser.add_argument("--lines", type=positive, metavar="N", help="only the first N lines")
    options = parser.parse_args(arguments)
    start = time.perf_counter()

    run = open_run(options.workdir)
    config = freeze(read_record(run).config, str(run.config_file))
    translator = Translator.load(run.path)
    test = read_test(translator, options.src, options.ref, scoring_of(config.data))
    test = dataclasses.replace(
        test,
        lines=test.lines[: options.lines],
        sources=test.sources[: options.lines],
        references=test.references[: options.lines],
    )
    ours = translator.vocabularies.tgt.decode(Reference(translator).greedy(test.sources))
    scores = test.score(ours)
    metrics: dict[str, float] = {"sentences": len(test.lines), "bleu_here": scores.bleu}
    sample = sample_lines(translator.vocabularies, run.data, None)
    for quantization in QUANTIZED["bergamot"]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "model"
            export(
                translator,
                folder,
                form="bergamot",
                quantization=quantization,
                card=Card(data=config.data),
                sample=sample,
            )
            theirs, seconds = by_engine(folder, Path(options.engine), test.lines)
            size = (folder / "model.bin").stat().st_size
        equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
        suffix = "" if quantization == "float32" else f"_{quantization}"
        metrics[f"lines_equal_share{suffix}"] = equal / len(ours)
        metrics[f"bleu_lost{suffix}"] = scores.bleu - test.score(theirs).bleu
        metrics[f"seconds{suffix}"] = seconds
        metrics[f"model_mib{suffix}"] = size / 2**20
        print(json.dumps(metrics, indent=2), file=sys.stderr)

    result = write_result(
        RESULTS / "browser.json",
        command="python -m benchmarks.browser --workdir RUN --src FILE --ref FILE --engine FOLDER",
        config=config.name,
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures={"bleu_here": scores.signatures[scores.bleu_name]},
        details={"computes": "float32"},
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def by_engine(folder: Path, engine: Path, lines: Sequence[str]) -> tuple[list[str], float]:
    """The folder's translations of the lines, and how many seconds Node took, start included."""
    start = time.perf_counter()
    done = subprocess.run(
        ["node", str(folder / "translate.mjs")],
        input="".join(f"{line}\n" for line in lines).encode(),
        stdout=subprocess.PIPE,
        cwd=engine,
        check=True,
    )
    return done.stdout.decode().split("\n")[:-1], time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
