"""What a folder's generation settings become, or how they are named."""

import json
from typing import Any

import pytest

from flaxformer_mt.interop.generation import Generation, decoder_start, of_folder

CONFIG = {"num_beams": 6, "eos_token_id": 0, "forced_eos_token_id": 0, "d_model": 8}


def read(**generation: Any) -> Generation:
    return of_folder(generation, CONFIG, usual_beam=4, longest=64, eos=0, never=[1, 9])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("forced_bos_token_id", 7),
        ("min_length", 20),
        ("min_new_tokens", 3),
        ("suppress_tokens", [5, 6]),
        ("begin_suppress_tokens", [5]),
        ("repetition_penalty", 1.2),
        ("encoder_no_repeat_ngram_size", 2),
        ("exponential_decay_length_penalty", [5, 1.2]),
        ("do_sample", True),
        ("num_beam_groups", 2),
        ("renormalize_logits", True),
        ("stop_strings", ["."]),
        ("eos_token_id", [0, 8]),
        ("forced_eos_token_id", 8),
        ("sequence_bias", [[[5], -1.0]]),
        ("a_setting_of_tomorrow", 1),
    ],
)
def test_settings_without_a_form_are_named(name, value):
    [note] = read(**{name: value}).notes
    assert note.startswith(f"{name} = {json.dumps(value)} is not imported: ")


def test_those_of_an_older_folder_are_in_its_config():
    config = CONFIG | {"max_length": 9, "min_length": 3, "forced_bos_token_id": 7}
    generation = of_folder({}, config, usual_beam=4, longest=64, eos=0, never=[])
    assert generation.settings["max_extra_tokens"] == 8
    assert [note.split()[0] for note in generation.notes] == ["min_length", "forced_bos_token_id"]
    assert decoder_start({"decoder_start_token_id": 0}, {"decoder_start_token_id": 5}) == 0
    assert decoder_start({}, {"decoder_start_token_id": 5}) == 5


def test_settings_without_an_effect_are_not_named():
    settings: dict[str, Any] = {"do_sample": False, "top_k": 50, "top_p": 0.9, "min_length": 0}
    settings |= {"suppress_tokens": [], "forced_bos_token_id": None, "transformers_version": "5"}
    settings |= {"repetition_penalty": 1.0, "eos_token_id": [0], "forced_eos_token_id": 0}
    settings |= {"use_cache": True, "bad_words_ids": [[9], [1]], "output_scores": True}
    assert read(**settings).notes == []


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({"max_length": 64}, None),  # no limit but the model's own
        ({"max_length": 7, "forced_eos_token_id": 0}, 6),  # it counts the begin mark
        ({"max_new_tokens": 5, "max_length": 7, "forced_eos_token_id": 0}, 5),
        ({"max_length": 7}, 7),  # six tokens, and no end mark by force
    ],
)
def test_the_longest_output(generation, expected):
    settings = read(**generation).settings
    assert settings.get("max_extra_tokens") == expected
    assert settings.get("max_ratio") == (None if expected is None else 0.0)


@pytest.mark.parametrize(
    ("early_stopping", "patience"), [(True, 1.0), (False, None), ("never", None)]
)
def test_when_it_stops(early_stopping, patience):
    assert read(early_stopping=early_stopping).settings.get("patience") == patience
