"""BLEU of one trained run's weights in CTranslate2, in transformers and here, and records it.

python -m benchmarks.interop --workdir RUN --src FILE --ref FILE

The model is exported with the comparison that every export makes, then all runtimes translate the
test set greedily and by beam search: the run's beam size, the same tokens forbidden. Here beam
search follows their rules (`ends_among` "beam", `length_norm` "average"), once without a length
penalty and once with 0.6; the paper's search is scored as well. Where outputs differ, it counts how
often the model itself finds ours likelier. `pip install torch transformers` besides [export].
"""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import RESULTS
from flaxformer_mt.config import CorpusConfig, DataConfig, freeze
from flaxformer_mt.data.corpus import read_pairs
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.scoring import Scores, Scoring, corpus_scores, scoring_of
from flaxformer_mt.interop import QUANTIZATIONS, ctranslate2, huggingface
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.parity import Parity, Reference, sample_lines
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import open_run, read_record

BATCH = 64
# As in CTranslate2 and transformers.
RULES = {"length_norm": "average", "ends_among": "beam"}
Sample = tuple[Sequence[str], str]  # lines, and where they are from
Runtime = ctranslate2.CTranslate2Runtime | huggingface.HuggingFaceRuntime


class Search(NamedTuple):
    """A beam size (1: greedy) and a length penalty."""

    beam_size: int
    length_penalty: float


class Form(NamedTuple):
    """A format of exports and the number type of its weights."""

    form: str
    quantization: str

    @property
    def name(self) -> str:
        """Its name in metrics."""
        return self.form if self.form == "huggingface" else f"{self.form}_{self.quantization}"


FORMS = (
    *(Form("ctranslate2", quantization) for quantization in QUANTIZATIONS),
    Form("huggingface", "float32"),
)


@dataclasses.dataclass(frozen=True)
class TestSet:
    """Sentences as text and as token ids with their end mark, and their references."""

    lines: list[str]
    sources: list[list[int]]
    references: list[str]
    tokenizer: str

    def count_longer(self, limit: int) -> int:
        return sum(len(ids) > limit for ids in self.sources)

    def score(self, texts: Sequence[str]) -> Scores:
        return corpus_scores(texts, self.references, tokenizer=self.tokenizer)


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
    test = read_test(translator, options.src, options.ref, scoring_of(config.data))
    too_long = test.count_longer(translator.model.config.max_length)
    if too_long:
        parser.error(f"{too_long} lines are longer than the model takes; leave them out")

    beam_size = config.decoding.beam_size
    searches = {
        "greedy": Search(1, 0.0),
        "beam": Search(beam_size, 0.0),
        "beam_penalty": Search(beam_size, 0.6),
    }
    metrics: dict[str, float] = {"sentences": len(test.lines), "beam_size": beam_size}
    signatures: dict[str, str] = {}
    ours: dict[str, list[list[int]]] = {}
    for name, search in searches.items():
        searcher = translator.with_config(**RULES, **search._asdict())
        ours[name], scores = translate(searcher, test)
        metrics[f"{name}_bleu_here"] = scores.bleu
        signatures[f"{name}_bleu_here"] = scores.signatures[scores.bleu_name]
    _, scores = translate(translator, test)
    metrics["beam_penalty_bleu_here_by_the_papers_rules"] = scores.bleu

    comparison = Comparison(translator, test, searches, ours)
    sample = sample_lines(translator.vocabularies, run.data, None)
    with tempfile.TemporaryDirectory() as scratch:
        for form in FORMS:
            folder = Path(scratch) / form.name
            parity = export_form(form, folder, translator, data=config.data, sample=sample)
            metrics[f"largest_log_prob_difference_{form.name}"] = parity.largest
            metrics |= comparison.metrics(form, load(form, folder, translator))
            print(json.dumps(metrics, indent=2), file=sys.stderr)

    result = write_result(
        RESULTS / "interop.json",
        command="python -m benchmarks.interop --workdir RUN --src FILE --ref FILE",
        config=config.name,
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures=signatures,
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def read_test(translator: Translator, src: str, ref: str, scoring: Scoring) -> TestSet:
    corpus = CorpusConfig(kind="files", src=src, tgt=ref)
    pairs = list(read_pairs(corpus, "", key="--src and --ref"))
    lines = [pair.src for pair in pairs]
    return TestSet(
        lines=lines,
        sources=[[*ids, EOS] for ids in translator.vocabularies.src.encode(lines)],
        references=[pair.tgt for pair in pairs],
        tokenizer=scoring.tokenizer,
    )


def translate(translator: Translator, test: TestSet) -> tuple[list[list[int]], Scores]:
    """Outputs as token ids, and their scores."""
    translations = translator.translate(test.lines)
    scores = test.score([translation.text for translation in translations])
    return [list(translation.tokens) for translation in translations], scores


def export_form(
    form: Form, folder: Path, translator: Translator, *, data: DataConfig, sample: Sample
) -> Parity:
    """Exports the model into `folder`, and compares log-probabilities on the sample."""
    parity = export(
        translator,
        folder,
        form=form.form,
        quantization=form.quantization,
        card=Card(data=data),
        sample=sample,
    )
    assert parity is not None
    print(f"{form.name}: {parity}", file=sys.stderr)
    return parity


def load(form: Form, folder: Path, translator: Translator) -> Runtime:
    if form.form == "huggingface":
        return huggingface.HuggingFaceRuntime(folder)
    return ctranslate2.CTranslate2Runtime(
        folder, translator.vocabularies, quantization=form.quantization
    )


class Comparison:
    """Compares other runtimes' outputs with `ours`, token ids by the name of the search."""

    def __init__(
        self,
        translator: Translator,
        test: TestSet,
        searches: Mapping[str, Search],
        ours: Mapping[str, Sequence[list[int]]],
    ) -> None:
        self._reference = Reference(translator)
        self._limit = translator.model.config.max_length
        self._vocabulary = translator.vocabularies.tgt
        self._test, self._searches, self._ours = test, searches, ours

    def metrics(self, form: Form, runtime: Runtime) -> dict[str, float]:
        """A runtime's scores, how many of its outputs differ, and how many of these the model finds
        less likely than ours."""
        sources = self._test.sources
        metrics: dict[str, float] = {}
        for name, search in self._searches.items():
            ours = self._ours[name]
            theirs = by_length(runtime, sources, search, limit=self._limit)
            bleu = self._test.score(self._vocabulary.decode(theirs)).bleu
            differing = [number for number, ids in enumerate(ours) if ids != theirs[number]]
            metrics[f"{name}_bleu_{form.name}"] = bleu
            metrics[f"{name}_other_outputs_{form.name}"] = len(differing)
            metrics[f"{name}_likelier_here_than_{form.name}"] = likelier(
                self._reference,
                [sources[number] for number in differing],
                [ours[number] for number in differing],
                [theirs[number] for number in differing],
            )
        return metrics


def likelier(
    reference: Reference,
    sources: Sequence[Sequence[int]],
    ours: Sequence[Sequence[int]],
    theirs: Sequence[Sequence[int]],
) -> int:
    """How many of `ours` have a higher log-probability than the other output of that source."""
    if not sources:
        return 0
    our_log_probs = reference.log_probs(sources, ours)
    their_log_probs = reference.log_probs(sources, theirs)
    return sum(
        float(our_tokens.sum()) > float(their_tokens.sum())
        for our_tokens, their_tokens in zip(our_log_probs, their_log_probs, strict=True)
    )


def by_length(
    runtime: Runtime, sources: Sequence[Sequence[int]], search: Search, *, limit: int
) -> list[list[int]]:
    """Outputs in the sources' order; sentences of like length are searched together."""
    outputs: list[list[int]] = [[] for _ in sources]
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        batch = [sources[number] for number in numbers]
        batch_outputs = runtime.search(batch, limit=limit, **search._asdict())
        for number, output in zip(numbers, batch_outputs, strict=True):
            outputs[number] = output
    return outputs


if __name__ == "__main__":
    sys.exit(main())
