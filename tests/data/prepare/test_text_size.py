"""The size of a text before it is prepared: pairs, tokens and different words."""

import pytest

from flaxformer_mt.config import corpus, default_config, freeze
from flaxformer_mt.config.sizes import TextSize, sized
from flaxformer_mt.data.prepare import text_size
from flaxformer_mt.data.prepare.manifest import PrepareError
from flaxformer_mt.data.prepare.text_size import measured_text


def config_of(folder, src="", tgt="", *, languages=("en", "de"), **settings):
    """A config's data: two files with these texts, or a corpus of another kind."""
    config = default_config()
    config.data.src_lang, config.data.tgt_lang = languages
    if not settings:
        (folder / "src").write_text(src)
        (folder / "tgt").write_text(tgt)
        settings = {"src": str(folder / "src"), "tgt": str(folder / "tgt")}
    config.data.train.mine = corpus(**settings)
    return freeze(config, "test").data


def test_both_sides_are_counted_in_words(tmp_path):
    data = config_of(tmp_path, "a b c\na b\n", "x y\nx\n")
    assert measured_text(data) == TextSize(tokens=8, pairs=2, types=5)


def test_lines_that_are_no_pairs_do_not_count(tmp_path):
    data = config_of(tmp_path, "a b c\n\na b\n", "x y\nx z\nx\n")
    assert measured_text(data) == TextSize(tokens=8, pairs=2, types=5)
    with pytest.raises(PrepareError, match="empty"):
        measured_text(config_of(tmp_path))


def test_two_characters_count_as_a_token_where_words_have_no_blanks(tmp_path):
    data = config_of(tmp_path, "two words\n", "今天天气\n", languages=("en", "zh"))
    assert measured_text(data) == TextSize(tokens=4, pairs=1)


CHINESE = "今天天气很好我们去公园散步吧\n"  # 14 characters


@pytest.mark.parametrize("languages", [("en", "zh"), ("en", "de"), ("en", "mul")])
def test_chinese_lines_are_no_single_words_whatever_language_is_set(tmp_path, languages):
    """As in a mixture of several languages, or where one is assumed."""
    data = config_of(tmp_path, "we go for a walk\n" * 300, CHINESE * 300, languages=languages)
    text = measured_text(data)
    assert text == TextSize(tokens=300 * (5 + 7), pairs=300)
    assert sized(text) == sized(TextSize(3600))


def test_a_few_chinese_names_leave_the_words_known(tmp_path):
    data = config_of(tmp_path, "the city of Xi'an (西安) is old\n", "die Stadt Xi'an ist alt\n")
    text = measured_text(data)
    assert (text.tokens, text.types) == (7 + 1 + 5, 11)


def test_a_large_file_is_measured_by_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(text_size, "ENOUGH", 100)
    lines = [f"{number:05} words of a line\n" for number in range(1000)]
    data = config_of(tmp_path, "".join(lines), "".join(lines))
    text = measured_text(data)
    assert (text.pairs, text.tokens) == (1000, 10_000)
    assert text.types == 104  # of the lines read


def test_the_grammar_is_measured_by_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(text_size, "_SAMPLE", 500)
    data = config_of(tmp_path, kind="synthetic", size=5000)
    sampled = measured_text(data)
    monkeypatch.setattr(text_size, "_SAMPLE", 5001)
    whole = measured_text(data)
    assert sampled.pairs == whole.pairs == 5000
    assert sampled.tokens == pytest.approx(whole.tokens, rel=0.05)
    assert sampled.types < whole.types
