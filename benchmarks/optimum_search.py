"""Optimum on a folder of ONNX graphs, for `benchmarks.onnx_runtime`.

Run in its environment (`peers/optimum.txt`), without this project:

python optimum_search.py < JSON         JSON on stdout

The question has `folder`, `lines`, the most tokens of each line's output with its end mark
(`limits`) and `beams`, the beam sizes. The answer has the tokenizer's ids of each line (`sources`),
by beam size the ids of each output (`outputs`), and `versions` of packages.
"""

import contextlib
import importlib
import importlib.metadata
import json
import sys
from collections.abc import Mapping
from typing import Any

PACKAGES = ("optimum-onnx", "onnxruntime", "transformers", "torch")


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    optimum: Any = importlib.import_module("optimum.onnxruntime")
    transformers: Any = importlib.import_module("transformers")
    tokenizer = transformers.MarianTokenizer.from_pretrained(question["folder"])
    model = optimum.ORTModelForSeq2SeqLM.from_pretrained(question["folder"])
    batches = [tokenizer([line], return_tensors="pt") for line in question["lines"]]
    outputs = {
        beam: [
            model.generate(**batch, num_beams=beam, max_length=None, max_new_tokens=limit)[0]
            for batch, limit in zip(batches, question["limits"], strict=True)
        ]
        for beam in question["beams"]
    }
    return {
        "sources": [batch.input_ids[0].tolist() for batch in batches],
        "outputs": {beam: [ids.tolist() for ids in rows] for beam, rows in outputs.items()},
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        answered = answer(json.load(sys.stdin))
    json.dump(answered, sys.stdout)
