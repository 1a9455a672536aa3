"""What a record of an unfinished translation has: a later version must find the same."""

import json

from flaxformer_mt.bulk.forms import Form
from flaxformer_mt.bulk.translating import TranslateSettings
from flaxformer_mt.decoding.constraints.terminology import Terminology
from flaxformer_mt.decoding.options import SearchOptions
from flaxformer_mt.decoding.search.sampling import Sampling
from tests.decoding.no_digits import NoDigits

FORM = {
    "read": "text",
    "write": "text",
    "column": 0,
    "append": True,
    "key": "source",
    "target_key": "translation",
    "prefix_key": "",
    "forbid_key": None,
    "constraints_key": None,
    "shown": {"scores": False, "alignments": False, "tokens": False, "n_best": False},
}
PLAIN = {
    "form": FORM,
    "n_best": 1,
    "overlong": "split",
    "prefix": "",
    "suppress": [],
    "forbid": None,
    "terminology": None,
    "sampling": None,
    "mbr": None,
}


def recorded(settings: TranslateSettings) -> list[tuple[str, object]]:
    """The settings in a record, in its order: the first difference is the one that is named."""
    return [*json.loads(json.dumps(settings.identity())).items()]


def test_settings_have_the_names_of_the_first_records():
    assert recorded(TranslateSettings(form=Form())) == [*PLAIN.items()]
    terms = Terminology.of({"dog": "Hund"})
    search = SearchOptions(
        n_best=2,
        suppress=["a"],
        forbid=["b c"],
        terminology=terms,
        sampling=Sampling(top_k=3),
        mbr=True,
    )
    changed = PLAIN | {
        "n_best": 2,
        "prefix": "Der",
        "suppress": ["a"],
        "forbid": ["b c"],
        "terminology": terms.digest,
        "sampling": {"temperature": 1.0, "top_k": 3, "top_p": 1.0, "seed": 1},
        "mbr": True,
    }
    assert recorded(TranslateSettings(search=search, prefix="Der")) == [*changed.items()]


def test_rules_of_the_caller_are_recorded_if_there_are_any():
    masked = TranslateSettings(search=SearchOptions(masks=(NoDigits((5, 7)),)))
    assert recorded(masked)[-1] == ("masks", [repr(NoDigits((5, 7)))])
