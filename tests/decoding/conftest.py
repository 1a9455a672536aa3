"""Runs with tiny models, one of each for all tests of this folder."""

import pytest

from flaxformer_mt.decoding.translator import Translator
from tests.decoding.runs import make_run


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("decoding") / "run", {1: 10.0, 2: 30.0, 3: 20.0})


@pytest.fixture(scope="session")
def translator(run):
    return Translator.load(run.path, which="best")
