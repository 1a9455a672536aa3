"""What folders say of a run's search: only what their programs mean the same by."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from flaxformer_mt.config import DataConfig, DecodingConfig
from flaxformer_mt.data.type_table import TypeTable
from flaxformer_mt.data.vocabulary import Vocabulary
from flaxformer_mt.export import huggingface
from flaxformer_mt.export.folder import language_codes, search_of
from tests.export.translators import translator, vocabularies

PAPER = DecodingConfig(beam_size=4, length_penalty=0.6)


def test_the_papers_penalty_is_no_exponent() -> None:
    found = search_of(PAPER, "ProgramX")
    assert (found.beam_size, found.length_penalty) == (4, 0.0)
    for said in (
        "The beam is 4 wide, as in the run",
        "`length_penalty` is 0, which is none. The run's is 0.6 in the paper's",
        "ProgramX divides by |Y|^alpha",
        "`decoding.ends_among` is `candidates`",
    ):
        assert said in found.notes


@pytest.mark.parametrize(
    ("changes", "penalty", "said"),
    [
        ({"length_norm": "average"}, 0.6, "`length_penalty` is 0.6, as in the run: the exponent"),
        ({"length_penalty": 0.0}, 0.0, "`length_penalty` is 0, which is none, as in the run"),
        ({"ends_among": "beam"}, 0.0, "among the best of the beam, as in the run"),
        ({"coverage_penalty": 0.2}, 0.0, "`decoding.coverage_penalty` of 0.2 is left out"),
        ({"diverse_groups": 2}, 0.0, "`decoding.diverse_groups` of 2 is left out"),
    ],
)
def test_what_is_the_same_is_taken_along(
    changes: dict[str, object], penalty: float, said: str
) -> None:
    found = search_of(dataclasses.replace(PAPER, **changes), "ProgramX")  # type: ignore[arg-type]
    assert found.length_penalty == penalty and said in found.notes


def test_greedy_search_ends_in_one_way() -> None:
    assert "ends" not in search_of(dataclasses.replace(PAPER, beam_size=1), "ProgramX").notes


def test_codes_are_pieces_of_tables_alone() -> None:
    plain = vocabularies(shared=True).src
    *pieces, _, _, _ = plain.pieces()
    table = TypeTable((*pieces, ">>fra<<", ">>x<<y<<", "a>>b<<"))
    assert language_codes(Vocabulary(plain.model, table)) == [">>fra<<"]
    assert language_codes(plain) == []


@pytest.mark.parametrize(("norm", "penalty"), [("gnmt", 0.0), ("average", 0.75)])
def test_a_hugging_face_folder_has_no_alpha_of_another_formula(
    tmp_path: Path, norm: str, penalty: float
) -> None:
    pytest.importorskip("safetensors", reason="needs the [export] extra")
    made = translator()
    made.config = dataclasses.replace(made.config, length_norm=norm, length_penalty=0.75)  # type: ignore[arg-type]
    huggingface.write(made, tmp_path, languages=DataConfig(src_lang="en", tgt_lang="de"))
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["length_penalty"]) == (2, penalty)
    readme = (tmp_path / "README.md").read_text()
    assert "both are the same search" not in readme
    assert search_of(made.config, "transformers").notes in readme
