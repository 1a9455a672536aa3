"""Generation settings of a Hugging Face folder: as settings of this program's search, or named.

What transformers does with them: `GenerationConfig` and `generation/utils.py` of its source.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flaxformer_mt.interop import ExportError

# The values of a setting that have no effect on the outputs.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "do_sample": (False,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "num_return_sequences": (1,),
    "remove_invalid_values": (False, True),
    "renormalize_logits": (False,),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ([], {}),
    "force_words_ids": ([],),
    "forced_bos_token_id": (),
    "forced_decoder_ids": ([],),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1.0,),
    "penalty_alpha": (0.0,),
    "dola_layers": (),
    "max_time": (),
    "stop_strings": ([],),
    "token_healing": (False,),
    "low_memory": (False, True),
    "watermarking_config": (),
    "constraints": ([],),
}
# They matter only when outputs are drawn, that is if `do_sample` is true.
_OF_SAMPLING = frozenset(
    "temperature top_k top_p min_p top_h typical_p epsilon_cutoff eta_cutoff".split()
)
# About memory, speed and further returns of `generate`, or settled elsewhere.
_NOT_OF_THE_SEARCH = frozenset(
    "transformers_version _from_model_config use_cache cache_implementation cache_config "
    "max_cache_len return_legacy_cache output_attentions output_hidden_states output_scores "
    "output_logits return_dict_in_generate is_assistant num_assistant_tokens "
    "num_assistant_tokens_schedule assistant_confidence_threshold prompt_lookup_num_tokens "
    "max_matching_ngram_size assistant_early_exit assistant_lookbehind target_lookbehind "
    "assistant_ensemble_weight speculation_type compile_config disable_compile "
    "continuous_batching_config use_mtp trust_remote_code pad_token_id bos_token_id "
    "decoder_start_token_id bad_words_ids".split()
)
_MAPPED = frozenset(
    "num_beams length_penalty no_repeat_ngram_size early_stopping max_length max_new_tokens "
    "eos_token_id forced_eos_token_id".split()
)
_WITHOUT_FORM = "transformers' generate applies it, but this program can't"


class Generation(NamedTuple):
    """The search that a folder asks for."""

    settings: Mapping[str, Any]  # of `decoding`, by name
    notes: Sequence[str]  # a line for each setting that has no form here


def given(generation: Mapping[str, Any], config: Mapping[str, Any], name: str) -> Any:
    """A setting of generation_config.json, else of config.json, as in older folders."""
    value = generation.get(name)
    return config.get(name) if value is None else value


def decoder_start(generation: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """The id of the token before an output's first, or None."""
    return given(generation, config, "decoder_start_token_id")


def of_folder(
    generation: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    usual_beam: int,
    longest: int,
    eos: int,
    never: Sequence[int],
) -> Generation:
    """The search that generation_config.json and config.json ask for.

    `longest` is the most tokens an output can have, `eos` the end mark's id in the folder, and
    `never` are the ids that this program never generates. Raises ExportError for a limit that is
    not a number.
    """
    penalty = given(generation, config, "length_penalty")
    settings: dict[str, Any] = {
        "beam_size": given(generation, config, "num_beams") or usual_beam,
        "length_norm": "average",
        "length_penalty": 1.0 if penalty is None else penalty,
        "no_repeat_ngram": given(generation, config, "no_repeat_ngram_size") or 0,
        "ends_among": "beam",
    }
    if given(generation, config, "num_beams") == 0:
        settings["beam_size"] = 0  # which the schema refuses
    if given(generation, config, "early_stopping") is True:
        settings["patience"] = 1.0

    # transformers takes config.json's only if there is no other file.
    forced_end = (generation or {"forced_eos_token_id": eos, **config}).get("forced_eos_token_id")
    limit = _limit(generation, config)
    if limit is not None and limit < longest - 1:
        # Without a forced end mark an output has so many tokens before its end mark.
        limit += forced_end is None
        settings |= {"max_ratio": 0.0, "max_extra_tokens": limit}

    notes = list(_notes(generation, config, eos=eos, never=never))
    return Generation(settings, notes)


def _limit(generation: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    """The most tokens of an output, its end mark included."""
    # `max_length` counts the token that the decoder starts from.
    for name, start_tokens in (("max_new_tokens", 0), ("max_length", 1)):
        limit = given(generation, config, name)
        if limit is None:
            continue
        if not isinstance(limit, int) or limit <= start_tokens:
            raise ExportError(f"{name} = {limit!r} must be an integer > {start_tokens}")
        return limit - start_tokens
    return None


def _notes(
    generation: Mapping[str, Any], config: Mapping[str, Any], *, eos: int, never: Sequence[int]
) -> list[str]:
    # config.json has many settings besides the search's; generation_config.json has no others.
    names = dict.fromkeys([*generation, *(name for name in config if name in _WITHOUT_EFFECT)])
    settings = {name: given(generation, config, name) for name in names}
    notes = [
        f"{name} = {json.dumps(setting)} is not imported: {_WITHOUT_FORM}"
        for name, setting in settings.items()
        if not _needs_no_form(name, setting)
    ]
    return notes + _notes_on_tokens(generation, config, eos=eos, never=never)


def _needs_no_form(name: str, value: Any) -> bool:
    """Whether a setting is imported or settled elsewhere, or changes no output."""
    return (
        name in _MAPPED | _NOT_OF_THE_SEARCH | _OF_SAMPLING
        or value is None
        or value in _WITHOUT_EFFECT.get(name, ())
    )


def _notes_on_tokens(
    generation: Mapping[str, Any], config: Mapping[str, Any], *, eos: int, never: Sequence[int]
) -> list[str]:
    """On tokens that end an output, or that none may have."""
    notes = []
    for name in ("eos_token_id", "forced_eos_token_id"):
        setting = given(generation, config, name)
        ids = setting if isinstance(setting, list) else [setting]
        ordinary = [number for number in ids if number not in (None, eos)]
        if ordinary:
            notes.append(
                f"{name} = {json.dumps(setting)} is not imported: only the end mark, {eos}, ends "
                f"an output here, and {', '.join(map(str, ordinary))} doesn't"
            )

    bad = given(generation, config, "bad_words_ids") or []
    if left_out := [words for words in bad if words not in [[number] for number in never]]:
        notes.append(f"bad_words_ids {left_out} are not imported: suppress them when translating")
    return notes
