"""Requests made up from the server's own OpenAPI document: it does what the document says."""

import pytest

from benchmarks.serving.fuzz import fuzz
from benchmarks.serving.hostile import attack
from tests.serving.stand_in import SEVERAL, StandIn, running

EXAMPLES = 20  # an address; `benchmarks.serving` asks for thousands
pytestmark = pytest.mark.extended
pytest.importorskip("schemathesis", reason="needs schemathesis: pip install -e '.[dev]'")


def test_the_server_does_what_its_document_says():
    with running(StandIn(), max_characters=2000) as server:
        fuzz(server.url, "--phases", "examples,coverage,fuzzing", examples=EXAMPLES)
        assert server.metric("flaxformer_sentences_total") > 20
        assert not server.errors()


def test_so_it_does_where_keys_are_needed():
    # The check that is left out sends a right key in one header and a wrong one in the other.
    ways = ("--exclude-checks", "ignored_auth", "--header", "X-API-Key: secret")
    with running(StandIn(), keys=frozenset({"secret"})) as server:
        fuzz(server.url, "--phases", "examples,fuzzing", *ways, examples=EXAMPLES // 4)


def test_so_it_does_for_several_directions():
    with running(StandIn(), model=SEVERAL) as server:
        fuzz(server.url, "--phases", "examples,coverage,fuzzing", examples=EXAMPLES)
        assert server.metric("flaxformer_sentences_total") > 20


def test_no_broken_request_is_an_error_of_the_server():
    with running(StandIn(), body_seconds=0.3) as server:
        outcome = attack(server, requests=600, seed=7, patience=20)
        assert outcome.errors == outcome.statuses["hung"] == 0, outcome
        assert {"200", "400", "404", "405", "413", "415"} <= set(outcome.statuses), outcome
        assert server.translate("a b")[0] == 200
        assert not server.errors()
