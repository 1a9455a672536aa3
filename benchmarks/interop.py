"""BLEU of one trained run's weights in CTranslate2, in transformers and here, and records it.

python -m benchmarks.interop --workdir RUN --src FILE --ref FILE

The model is exported with the comparison that every export makes, then all runtimes translate the
test set greedily and by beam search: the run's beam size, the same tokens forbidden. Here beam
search follows their rules (`ends_among` "beam", `length_norm` "average"), once without a length
penalty and once with 0.6; the paper's search is scored as well. Where outputs differ, it is counted
which of them the model itself thinks likelier. `pip install torch transformers` besides [export].
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import RESULTS
from flaxformer_mt.config import CorpusConfig, freeze
from flaxformer_mt.data.corpus import read_pairs
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.scoring import Scores, corpus_scores
from flaxformer_mt.interop import QUANTIZATIONS, ctranslate2, huggingface
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.parity import Reference, sample_lines
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import open_run, read_record

BATCH = 64
GREEDY = "greedy"


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
    sample = sample_lines(translator.vocabularies, run.data, None)
    sources = [[*ids, EOS] for ids in translator.vocabularies.src.encode(lines)]
    limit = translator.model.config.max_length
    if too_long := sum(len(ids) > limit for ids in sources):
        parser.error(f"{too_long} lines are longer than the model takes; leave them out")

    def score(texts: Sequence[str]) -> Scores:
        return corpus_scores(texts, references, tokenized=config.data.tokenized)

    beam_size = config.decoding.beam_size
    metrics: dict[str, float] = {"sentences": len(lines), "beam_size": beam_size}
    searches = {GREEDY: (1, 0.0), "beam": (beam_size, 0.0), "beam_penalty": (beam_size, 0.6)}
    theirs = {"length_norm": "average", "ends_among": "beam"}
    ours: dict[str, list[list[int]]] = {}
    for search, (size, alpha) in searches.items():
        searched = translator.with_config(**theirs, beam_size=size, length_penalty=alpha)
        found = searched.translate(lines)
        ours[search] = [list(translation.tokens) for translation in found]
        own = score([translation.text for translation in found])
        metrics[f"{search}_bleu_here"] = own.bleu
    papers = translator.translate(lines)
    metrics["beam_penalty_bleu_here_by_the_papers_rules"] = score(
        [each.text for each in papers]
    ).bleu
    reference = Reference(translator)
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
                card=Card(data=config.data),
                sample=sample,
            )
            assert parity is not None
            print(f"{name}: {parity}", file=sys.stderr)
            metrics[f"largest_log_prob_difference_{name}"] = parity.largest
            runtime: ctranslate2.CTranslate2Runtime | huggingface.HuggingFaceRuntime = (
                huggingface.HuggingFaceRuntime(folder)
                if form == "huggingface"
                else ctranslate2.CTranslate2Runtime(
                    folder, translator.vocabularies, quantization=quantization
                )
            )
            for search, (size, alpha) in searches.items():
                outputs = by_length(
                    runtime, sources, beam_size=size, limit=limit, length_penalty=alpha
                )
                bleu = score(translator.vocabularies.tgt.decode(outputs)).bleu
                metrics[f"{search}_bleu_{name}"] = bleu
                other = [n for n, ids in enumerate(ours[search]) if ids != outputs[n]]
                metrics[f"{search}_other_outputs_{name}"] = len(other)
                # Which search found what the model itself thinks better of.
                metrics[f"{search}_likelier_here_than_{name}"] = likelier(
                    reference,
                    [sources[n] for n in other],
                    [ours[search][n] for n in other],
                    [outputs[n] for n in other],
                )
            print(json.dumps(metrics, indent=2), file=sys.stderr)
    result = write_result(
        RESULTS / "interop.json",
        command="python -m benchmarks.interop --workdir RUN --src FILE --ref FILE",
        config=config.name,
        seconds=time.perf_counter() - start,
        metrics=metrics,
        # The same for all of them.
        signatures={f"{search}_bleu_here": own.signatures[own.bleu_name] for search in searches},
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def likelier(
    reference: Reference,
    sources: Sequence[Sequence[int]],
    ours: Sequence[Sequence[int]],
    theirs: Sequence[Sequence[int]],
) -> int:
    """How many of `ours` have a higher log-probability than the other output of that source."""
    if not sources:
        return 0
    one, other = (reference.log_probs(sources, outputs) for outputs in (ours, theirs))
    return sum(float(a.sum()) > float(b.sum()) for a, b in zip(one, other, strict=True))


def by_length(
    runtime: ctranslate2.CTranslate2Runtime | huggingface.HuggingFaceRuntime,
    sources: Sequence[Sequence[int]],
    *,
    beam_size: int,
    limit: int,
    length_penalty: float,
) -> list[list[int]]:
    """Outputs in the sources' order; sentences of like length are searched together."""
    outputs: list[list[int]] = [[] for _ in sources]
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        batch = [sources[number] for number in numbers]
        found = runtime.search(
            batch, beam_size=beam_size, limit=limit, length_penalty=length_penalty
        )
        for number, output in zip(numbers, found, strict=True):
            outputs[number] = output
    return outputs


if __name__ == "__main__":
    sys.exit(main())
