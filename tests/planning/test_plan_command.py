"""The command without its compiler: what it says of wrong arguments."""

from __future__ import annotations

from typing import Any

import pytest

from flaxformer_mt.cli.main import main
from flaxformer_mt.config import load_config
from flaxformer_mt.planning import SETTINGS
from flaxformer_mt.planning.compile import TooLarge
from flaxformer_mt.planning.plan import DecodePlan, PlanningError, plan_decoding
from flaxformer_mt.planning.report import decoding_as_text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topology=v5e:2x4", "--lengths=64"], "write SRC,TGT"),
        (["--topology=v5e:2x4", "--decode", "--save-hlo=x"], "--save-hlo has no effect on --deco"),
        (["--topology=v5e:2x4", "--shardings", "--lengths=8,8"], "--lengths has no effect on --sh"),
        (["--topology", "h100:8"], "plan: error: 'h100:8': only TPU topologies can be planned"),
    ],
)
def test_usage(arguments, message, capsys, monkeypatch):
    for name in SETTINGS:  # as it was, afterwards
        monkeypatch.setenv(name, "unset")
    try:
        status = main(["plan", "--config", "quickstart", *arguments])
    except SystemExit as error:
        status = error.code
    assert status == 2 and message in capsys.readouterr().err


def test_a_search_that_does_not_fit_is_told_by_its_own_settings():
    plan = DecodePlan(
        **{"config": "c", "topology": "v5e:1x1", "chip": "TPU v5e", "rows": 8, "src_length": 16},
        **{"beam_size": 4, "max_length": 66, "compile_seconds": 1.0, "hbm_bytes": 2**30},
        **{"memory": None, "refused": TooLarge(needed=2**31, available=2**30, message="")},
        **{"replications": (), "compute": None, "seconds": 0.0, "seconds_per_token": 0.0},
    )
    text = decoding_as_text(plan)
    assert "1.00 GiB too much. Lower decoding.batch_tokens or decoding.beam_size" in text


def test_a_source_longer_than_the_model_takes_is_refused():
    config = load_config("quickstart", ["model.max_length=128"])
    topology: Any = None
    with pytest.raises(PlanningError, match="a sentence of 129 tokens"):
        plan_decoding(config, topology, src_length=129, src_vocab_size=9, tgt_vocab_size=9)
