"""Arguments that benchmarks share."""

import argparse

import pytest

from benchmarks.arguments import parse_with_settings, positive


def test_settings_are_taken_as_train_takes_them(capsys):
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", nargs="+")
    words = ["--sets", "a", "b", "--config.training.steps=5", "--config.data.train.x.tag=a=b"]
    options, settings = parse_with_settings(parser, words)
    assert options.sets == ["a", "b"]
    assert settings == {"training.steps": "5", "data.train.x.tag": "a=b"}
    with pytest.raises(SystemExit):
        parse_with_settings(parser, ["--config.training.steps", "5"])
    assert "--config.KEY=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", ""])
def test_a_number_that_is_not_positive_is_refused(text):
    assert positive("12") == 12
    with pytest.raises(argparse.ArgumentTypeError):
        positive(text)
