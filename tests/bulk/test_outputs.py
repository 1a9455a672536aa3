"""Where lines go, and what decides of them."""

import dataclasses
import errno
from types import SimpleNamespace

import numpy as np
import pytest

from flaxformer_mt.bulk.loading import identity
from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.bulk.outputs import Output, opened_sink
from flaxformer_mt.bulk.translating import TranslateSettings
from flaxformer_mt.config import DecodingConfig, ModelConfig
from flaxformer_mt.decoding.options import SearchOptions
from tests.decoding.no_digits import NoDigits


def restarted(path: object) -> Output:
    return Output(str(path), restart=True)


@pytest.mark.parametrize("name", ["out", "out.part", "out.part.json"])
def test_no_input_is_written_over(tmp_path, name):
    (tmp_path / name).write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / name)
    for source in (tmp_path / name, tmp_path / "link"):
        with pytest.raises(OutputError, match=f"{name}: is also the input"):
            with opened_sink(restarted(tmp_path / "out"), (str(source),)) as sink:
                sink.begin({})
    assert (tmp_path / name).read_text() == "precious"
    with pytest.raises(OutputError, match="is also the input"):
        with opened_sink(restarted("gs://bucket/x"), ("gs://bucket/x",)):
            pass


def test_what_else_fails_is_not_the_devices_fault():
    """A run directory that cannot be read, say, while /dev/null is open."""
    with pytest.raises(PermissionError, match="weights"):
        with opened_sink(restarted("/dev/null"), ("/dev/null",)) as sink:
            sink.write(b"one\n")
            sink.finish()
            raise PermissionError(errno.EACCES, "Permission denied", "weights")
    with pytest.raises(OutputError, match="/dev/full: cannot be written: No space left"):
        with opened_sink(restarted("/dev/full"), ()) as sink:
            sink.write(b"one\n")
            sink.finish()


def test_every_member_of_an_ensemble_decides_and_the_size_of_batches_does_not():
    def known(
        *dtypes: str, shortlist: object = None, together: int = 1, **decoding: int
    ) -> dict[str, object]:
        members = [
            ({"a": np.ones(2)}, SimpleNamespace(config=dataclasses.replace(ModelConfig(), dtype=d)))
            for d in dtypes
        ]
        translator = SimpleNamespace(
            members=members,
            model=members[0][1],
            name="best",
            together=together,
            shortlist=shortlist,
            runtime=None,
            vocabularies=SimpleNamespace(digest="0" * 64),
            told={},
            config=DecodingConfig(**decoding),  # type: ignore[arg-type]
        )
        return identity(translator, window=3)  # type: ignore[arg-type]

    assert known("float32")["dtype"] == "float32"
    assert known("float32", "bfloat16") != known("float32", "float32")
    # What ran out of memory goes on with smaller ones.
    assert known("float32", batch_tokens=99) == known("float32")
    shortlist = SimpleNamespace(digest="1")
    for changes in ({"beam_size": 2}, {"shortlist": shortlist}, {"together": 2}):
        assert known("float32", **changes) != known("float32")


def test_every_option_of_a_search_is_in_the_record_of_an_output():
    """One that is forgotten there would let a call resume another's output."""
    recorded = TranslateSettings(search=SearchOptions(several="keep", masks=[NoDigits(())]))
    names = {field.name for field in dataclasses.fields(SearchOptions)}
    # The number of a line follows from the input, and sizes of arrays change no output.
    assert names - recorded.identity().keys() == {"first", "constraint_sizes"}
