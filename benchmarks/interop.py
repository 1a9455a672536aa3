"""BLEU of one trained run's weights in CTranslate2, in transformers and here, and records it.

python -m benchmarks.interop --workdir RUN --src FILE --ref FILE

The model is exported with the comparison that every export makes, then all runtimes translate the
test set by the same beam search: the run's beam size, no length penalty (theirs are of another
formula), the same tokens forbidden. `pip install torch transformers` besides the [export] extra.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.result_file import RESULTS, write_result
from flaxformer_mt.config import CorpusConfig, freeze
from flaxformer_mt.data.corpus import read_pairs
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding import Translator
from flaxformer_mt.evaluation.bleu import Scores, corpus_scores
from flaxformer_mt.export import ctranslate2, transformers_runtime
from flaxformer_mt.export.ctranslate2 import QUANTIZATIONS
from flaxformer_mt.export.export import Sample, export
from flaxformer_mt.export.sample import sample_lines
from flaxformer_mt.rundir.layout import open_run, read_record

BATCH = 64


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interop")
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a trained run directory")
    parser.add_argument("--src", required=True, metavar="FILE", help="source lines of a test set")
    parser.add_argument("--ref", required=True, metavar="FILE", help="its reference translations")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    run = open_run(options.workdir)
    config = freeze(read_record(run).config, str(run.config_file))
    translator = Translator.load(run.path)
    corpus = CorpusConfig(kind="files", src=options.src, tgt=options.ref)
    pairs = list(read_pairs(corpus, "", key="--src and --ref"))
    lines, references = [pair.src for pair in pairs], [pair.tgt for pair in pairs]
    sample = Sample(*sample_lines(translator.vocabularies, run.data, None))
    sources = [[*ids, EOS] for ids in translator.vocabularies.src.encode(lines)]
    limit = translator.model.config.max_length
    if too_long := sum(len(ids) > limit for ids in sources):
        parser.error(f"{too_long} lines are longer than the model takes; leave them out")

    def score(texts: Sequence[str]) -> Scores:
        return corpus_scores(texts, references, tokenized=config.data.tokenized)

    beam_size = config.decoding.beam_size
    found = translator.translate(lines, beam_size=beam_size, length_penalty=0.0)
    ours = [list(translation.tokens) for translation in found]
    texts = [translation.text for translation in found]
    own = score(texts)
    metrics: dict[str, float] = {"sentences": len(lines), "beam_size": beam_size}
    metrics["bleu_here"] = own.bleu
    with tempfile.TemporaryDirectory() as scratch:
        for form, quantization in [
            *(("ctranslate2", quantization) for quantization in QUANTIZATIONS),
            ("huggingface", "float32"),
        ]:
            name = form if form == "huggingface" else f"{form}_{quantization}"
            folder = Path(scratch) / name
            parity = export(
                translator,
                folder,
                form=form,
                quantization=quantization,
                languages=config.data,
                sample=sample,
            )
            assert parity is not None
            print(f"{name}: {parity}", file=sys.stderr)
            runtime: ctranslate2.Runtime | transformers_runtime.Runtime = (
                transformers_runtime.Runtime(folder)
                if form == "huggingface"
                else ctranslate2.Runtime(folder, translator.vocabularies, quantization=quantization)
            )
            outputs = by_length(runtime, sources, beam_size=beam_size, limit=limit)
            metrics[f"bleu_{name}"] = score(translator.vocabularies.tgt.decode(outputs)).bleu
            same = sum(a == b for a, b in zip(ours, outputs, strict=True))
            metrics[f"same_output_{name}"] = same / len(lines)
            metrics[f"largest_log_prob_difference_{name}"] = parity.largest
            print(json.dumps(metrics, indent=2), file=sys.stderr)
    result = write_result(
        RESULTS / "interop.json",
        command="python -m benchmarks.interop --workdir RUN --src FILE --ref FILE",
        config=config.name,
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures={
            name: own.signatures[own.bleu_name] for name in metrics if name.startswith("bleu_")
        },
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def by_length(
    runtime: ctranslate2.Runtime | transformers_runtime.Runtime,
    sources: Sequence[Sequence[int]],
    *,
    beam_size: int,
    limit: int,
) -> list[list[int]]:
    """Outputs in the sources' order; sentences of like length are searched together."""
    outputs: list[list[int]] = [[] for _ in sources]
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        batch = [sources[number] for number in numbers]
        for number, output in zip(
            numbers, runtime.search(batch, beam_size=beam_size, limit=limit), strict=True
        ):
            outputs[number] = output
    return outputs


if __name__ == "__main__":
    sys.exit(main())
