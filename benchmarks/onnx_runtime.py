"""A run's model as ONNX graphs, in ONNX Runtime, its build for browsers and optimum, compared here.

python -m benchmarks.onnx_runtime --workdir RUN --src FILE --web FOLDER --peers DIR [--install]

The run is exported, and the first lines of FILE that the model takes are translated in float32:
greedily here, by the folder's own `translate.py` and in Node by onnxruntime-web; greedily and by
the run's beam here and by `ORTModelForSeq2SeqLM.generate` with `MarianTokenizer`. Beam search is
without a length penalty and here by transformers' rules (`ends_among` "beam", `length_norm`
"average"). `tokens_equal_share` is the share of places of outputs, end marks included, with the
same token. FOLDER is where `npm install --prefix FOLDER onnxruntime-web@1.30.0` was run. Optimum
runs in an environment of its own below DIR, which `--install` makes.
"""

import argparse
import dataclasses
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks import RESULTS
from benchmarks.arguments import positive
from benchmarks.peer_environments import EnvironmentMissing, Environments
from flaxformer_mt.config import freeze
from flaxformer_mt.data.corpus.text_files import lines
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.run.decoder import BatchDecoder
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.huggingface import Card, numbering_of
from flaxformer_mt.interop.onnx import ONNXRuntime
from flaxformer_mt.interop.parity import Reference, Rows, compare
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import open_run, read_record

OPTIMUM = Path(__file__).with_name("optimum_search.py")
WEB = Path(__file__).with_name("onnx_web.mjs")
COUNT = 100
BOUND = 1e-3


class Sample(NamedTuple):
    """Lines, their tokens with the end mark, and the most tokens of each output with its own."""

    lines: list[str]
    sources: list[list[int]]
    limits: list[int]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_runtime")
    parser.add_argument("--workdir", required=True, metavar="RUN", help="a trained run directory")
    parser.add_argument("--src", required=True, metavar="FILE", help="source lines")
    parser.add_argument("--lines", type=positive, default=COUNT, metavar="N", help="so many of it")
    parser.add_argument("--web", required=True, metavar="FOLDER", help="it has node_modules/")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="has optimum's environment")
    parser.add_argument("--install", action="store_true", help="make that environment")
    parser.add_argument("--python", type=Path, metavar="PYTHON", help="of one with optimum")
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    start = time.perf_counter()

    python = _environment(options.peers, options.install, options.python)
    run = open_run(options.workdir)
    config = freeze(read_record(run).config, str(run.config_file))
    translator = Translator.load(run.path)
    reference = Reference(translator)
    sample = read_sample(translator, reference, Path(options.src), options.lines)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        card = Card(data=config.data)
        export(translator, folder, form="onnx", card=card, sample=(sample.lines, "the lines"))
        runtime = ONNXRuntime(folder, numbering_of(translator))
        parity = compare(reference, runtime, sample.lines, "the lines", bound=BOUND)
        beam_size = config.decoding.beam_size
        question = {"folder": str(folder), "limits": sample.limits}
        optimum = asked(
            [str(python), str(OPTIMUM)],
            question | {"lines": sample.lines, "beams": [1, beam_size]},
        )
        web = asked(["node", str(WEB), options.web], question | ids_of(translator, sample))
        theirs = runtime.greedy(sample.sources, sample.limits)
        size = sum(path.stat().st_size for path in folder.glob("*.onnx"))

    greedy = reference.greedy(sample.sources)
    metrics: dict[str, float] = {
        "sentences": len(sample.lines),
        "tokens": parity.tokens,
        "beam_size": beam_size,
        "tokens_equal_share": equal_share(greedy, theirs),
        "web_tokens_equal_share": equal_share(greedy, ours_of(translator, web["outputs"])),
        "largest_log_prob_difference": parity.largest,
        "onnx_mib": size / 2**20,
    }
    metrics |= of_optimum(translator, sample, optimum, greedy)
    result = write_result(
        options.result / "onnx.json",
        command=(
            "python -m benchmarks.onnx_runtime --workdir RUN --src FILE --web FOLDER --peers DIR "
            "--install"
        ),
        config=config.name,
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures={},
        details={**optimum["versions"], "onnxruntime-web": web["version"]},
    )
    print(json.dumps(dict(result.metrics), indent=2))
    return 0


def _environment(folder: Path | None, install: bool, python: Path | None) -> Path:
    """The interpreter of optimum's environment. Raises SystemExit without one."""
    present = {} if python is None else {"optimum": python}
    if folder is None and python is None:
        raise SystemExit(
            "benchmarks.onnx_runtime: --peers DIR or --python PYTHON says where optimum is"
        )
    try:
        place = folder or Path()
        return Environments(place, install=install, present=present).python("optimum")
    except EnvironmentMissing as error:
        raise SystemExit(f"benchmarks.onnx_runtime: {error}") from None


def read_sample(translator: Translator, reference: Reference, path: Path, count: int) -> Sample:
    """The first `count` lines that aren't blank, nor longer than the model takes."""
    texts = [line.decode() for line in lines(path)]
    encoded = zip(texts, translator.vocabularies.src.encode(texts), strict=True)
    taken = [(text, [*ids, EOS]) for text, ids in encoded if 0 < len(ids) < reference.longest]
    sources = [source for _, source in taken[:count]]
    return Sample([text for text, _ in taken[:count]], sources, reference.limits(sources))


def asked(command: Sequence[str], question: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON that a program answers to a question in JSON."""
    done = subprocess.run(
        command, input=json.dumps(question), stdout=subprocess.PIPE, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def ids_of(translator: Translator, sample: Sample) -> dict[str, Any]:
    """The folder's ids of the sources and of the marks."""
    numbering = numbering_of(translator)
    return {
        "sources": [[numbering.src[token] for token in source] for source in sample.sources],
        "start": numbering.start,
        "end": numbering.tgt[EOS],
        "never": [numbering.start, *(numbering.tgt[mark] for mark in (PAD, BOS, UNK))],
    }


def ours_of(translator: Translator, rows: Rows) -> list[list[int]]:
    """This program's tokens of outputs in the folder's ids, up to their end marks."""
    ours = {number: token for token, number in enumerate(numbering_of(translator).tgt)}
    return [_tokens([ours.get(number, UNK) for number in row]) for row in rows]


def of_optimum(
    translator: Translator, sample: Sample, answer: Mapping[str, Any], greedy: Rows
) -> dict[str, float]:
    """How much of optimum's `answer` is the same here."""
    sources = ids_of(translator, sample)["sources"]
    same = [a == b for a, b in zip(sources, answer["sources"], strict=True)]
    # Its outputs begin with the token that the decoder starts from.
    by_greedy, by_beam = (
        ours_of(translator, [row[1:] for row in rows]) for rows in answer["outputs"].values()
    )
    beam = by_beam_here(translator, sample.sources)
    return {
        "optimum_sources_equal_share": sum(same) / len(same),
        "optimum_greedy_tokens_equal_share": equal_share(greedy, by_greedy),
        "optimum_beam_tokens_equal_share": equal_share(beam, by_beam),
        "optimum_beam_outputs_equal_share": sum(map(list.__eq__, beam, by_beam)) / len(beam),
    }


def _tokens(output: list[int]) -> list[int]:
    """Those before the end mark."""
    return output[: output.index(EOS)] if EOS in output else output


def by_beam_here(translator: Translator, sources: Rows) -> list[list[int]]:
    """Outputs of the run's beam size by transformers' rules, in float32 as there."""
    model_config = dataclasses.replace(translator.model.config, dtype="float32")
    model = translator.model.clone(config=model_config)
    search = dataclasses.replace(
        translator.config, length_norm="average", ends_among="beam", length_penalty=0.0
    )
    decoder = BatchDecoder((translator.params,), (model,), search)
    with jax.default_matmul_precision("highest"):
        decoded = decoder.decode([Source(ids, (0, 0)) for ids in sources])
    return [list(hypotheses[0].tokens) for hypotheses in decoded]


def equal_share(ours: Rows, theirs: Rows) -> float:
    """The share of places, end marks included, that have the same token in both."""
    places = [
        a == b
        for our_row, their_row in zip(ours, theirs, strict=True)
        for a, b in itertools.zip_longest([*our_row, EOS], [*their_row, EOS])
    ]
    return sum(places) / len(places)


if __name__ == "__main__":
    sys.exit(main())
