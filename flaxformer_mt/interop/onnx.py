"""A run's model as ONNX programs in a folder that optimum reads: a Marian model by its config.json,
whose graphs may also have pre-LN, any positions and any epsilon, since they come from our weights.

Tokenizer, ids and search settings are those of a folder for Hugging Face.
"""

import importlib
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import onnx_graph, package_of_extra, runner
from flaxformer_mt.interop.folder import write_program, write_readme
from flaxformer_mt.interop.huggingface import Card, numbering_of, write_settings
from flaxformer_mt.interop.marian import Numbering
from flaxformer_mt.interop.parity import LogProbs, Rows, Runtime
from flaxformer_mt.interop.weights import from_model, usual_heads

# A protobuf file can't be longer than 2 GiB; what isn't arrays takes less than a MiB.
_LONGEST_FILE = 2**31 - 2**20
_USE = """\
from translate import Model

model = Model(".")  # on a GPU: Model(".", providers=["CUDAExecutionProvider"])
print(model.translate(["TEXT"])[0])
"""
_NOTES = """\
Or `python translate.py < LINES`. It needs only the packages above, and shows how to call the two
graphs. Its search is greedy: without the run's beam, length penalty and other rules.

With beam search, by optimum (`pip install "optimum-onnx[onnxruntime]" sentencepiece`):

    from optimum.onnxruntime import ORTModelForSeq2SeqLM
    from transformers import MarianTokenizer

    tokenizer = MarianTokenizer.from_pretrained(".")
    model = ORTModelForSeq2SeqLM.from_pretrained(".")
    best = model.generate(**tokenizer(["TEXT"], return_tensors="pt"))
    print(tokenizer.batch_decode(best, skip_special_tokens=True)[0])

Its settings are in `generation_config.json`. transformers' `MarianMTModel` can't read this folder.

"""


def write(translator: Translator, folder: Path, *, card: Card) -> None:
    """Raises ExportError if optimum can't run the model, or the package onnx is missing."""
    config = translator.model.config
    weights = usual_heads(from_model(translator), config, "ONNX in optimum's form")
    numbering = numbering_of(translator)
    graphs = (onnx_graph.encoder, onnx_graph.decoder)
    for name, graph in zip(runner.GRAPHS, graphs, strict=True):
        _save(graph(weights, config, numbering), folder / name)

    notes = write_settings(translator, folder, card=card, numbering=numbering)
    marks = [numbering.tgt[mark] for mark in (PAD, BOS, EOS, UNK)]
    write_program(folder, translator, marks, start=numbering.start)
    write_readme(
        folder,
        translator,
        title=f"{card.title} by ONNX Runtime",
        install="onnxruntime numpy sentencepiece",
        use=_USE,
        notes=_NOTES + notes + "\n",
    )


def _save(model: Any, path: Path) -> None:
    """Writes the file; arrays of a model that is too large for one go into a second, NAME_data."""
    onnx = package_of_extra("onnx", "the format 'onnx' is written by the package")
    apart = {}
    # Not `model.ByteSize()`, which serialises the model and fails above 2 GiB.
    if sum(len(array.raw_data) for array in model.graph.initializer) > _LONGEST_FILE:
        apart = {"save_as_external_data": True, "location": f"{path.name}_data"}
    onnx.save_model(model, str(path), **apart)


class ONNXRuntime(Runtime):
    """The `Model` of the folder's own `translate.py`, on the CPU; token ids are this program's."""

    def __init__(self, folder: Path, numbering: Numbering) -> None:
        package = importlib.import_module("onnxruntime")
        self.name = f"ONNX Runtime {package.__version__}"
        # Leaves no compiled file in the folder, as an import would.
        self._model = runpy.run_path(str(folder / "translate.py"))["Model"](folder)
        self._numbering = numbering
        self._ours_of_src, self._ours_of_tgt = (
            {number: ours for ours, number in enumerate(side)}
            for side in (numbering.src, numbering.tgt)
        )

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        ours = self._ours_of_src
        pieces = self._model.encode(lines)
        return [[ours[id] for id in ids] for ids in map(self._model.program.ids_of, pieces)]

    def search(
        self, sources: Rows, *, beam_size: int, limit: int, length_penalty: float = 0.0
    ) -> list[list[int]]:
        """The folder's program has no beam search."""
        raise NotImplementedError

    def greedy(self, sources: Rows, limits: Sequence[int]) -> list[list[int]]:
        outputs = self._model.program.greedy(self._ids_of_sources(sources), limits)
        # A type of the source alone has no translation here.
        return [[self._ours_of_tgt.get(id, UNK) for id in ids] for ids in outputs]

    def log_probs(self, sources: Rows, targets: Rows) -> list[LogProbs]:
        tgt = self._numbering.tgt
        return self._model.program.log_probs(
            self._ids_of_sources(sources), [[tgt[token] for token in target] for target in targets]
        )

    def _ids_of_sources(self, sources: Rows) -> list[list[int]]:
        return [[self._numbering.src[token] for token in source] for source in sources]
