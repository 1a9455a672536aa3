"""The Transformer of "Attention Is All You Need" (arXiv 1706.03762) for machine translation.

    import flaxformer_mt as fm

    config = fm.load_config("files", {"data.train.mine.src": "train.en", ...})
    fm.train(config, "runs/mine")
    fm.Translator.load("runs/mine").translate("The old dog sleeps.").text

A name is loaded when it is first used: the import itself takes no time, and settings load without
JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flaxformer_mt.api.documents import (
        translate_document as translate_document,
        translate_document_file as translate_document_file,
    )
    from flaxformer_mt.api.files import (
        join_shards as join_shards,
        score_file as score_file,
        translate_file as translate_file,
    )
    from flaxformer_mt.api.prepare import prepare as prepare
    from flaxformer_mt.api.runs import average as average, evaluate as evaluate, export as export
    from flaxformer_mt.api.settings import load_config as load_config
    from flaxformer_mt.api.training import train as train
    from flaxformer_mt.api.trial import dry_run as dry_run
    from flaxformer_mt.bulk.forms import Form as Form, PairForm as PairForm, Shown as Shown
    from flaxformer_mt.cluster import Ray as Ray
    from flaxformer_mt.decoding.constraints.terminology import Terminology as Terminology
    from flaxformer_mt.decoding.search.sampling import Sampling as Sampling
    from flaxformer_mt.decoding.translator import Translator as Translator
    from flaxformer_mt.demo.package import demo_run as demo_run
    from flaxformer_mt.evaluation.compare import compare as compare
    from flaxformer_mt.evaluation.metrics import Metric as Metric
    from flaxformer_mt.evaluation.scoring import Scoring as Scoring
    from flaxformer_mt.interop.ctranslate2_search import (
        ctranslate2_runtime as ctranslate2_runtime,
    )
    from flaxformer_mt.sentences import split_sentences as split_sentences

# The one place of the version; the build reads it from here.
__version__ = "0.1.0"
_ROOMS = {
    "Form": "bulk.forms",
    "Metric": "evaluation.metrics",
    "PairForm": "bulk.forms",
    "Ray": "cluster",
    "Sampling": "decoding.search.sampling",
    "Scoring": "evaluation.scoring",
    "Shown": "bulk.forms",
    "Terminology": "decoding.constraints.terminology",
    "Translator": "decoding.translator",
    "average": "api.runs",
    "compare": "evaluation.compare",
    "ctranslate2_runtime": "interop.ctranslate2_search",
    "demo_run": "demo.package",
    "dry_run": "api.trial",
    "evaluate": "api.runs",
    "export": "api.runs",
    "join_shards": "api.files",
    "load_config": "api.settings",
    "prepare": "api.prepare",
    "score_file": "api.files",
    "split_sentences": "sentences",
    "train": "api.training",
    "translate_document": "api.documents",
    "translate_document_file": "api.documents",
    "translate_file": "api.files",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute = getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
