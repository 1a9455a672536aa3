"""Phrases that messages share."""

from flaxformer_mt.wording import about_lines


def test_a_remark_names_the_first_of_its_lines():
    assert about_lines("with a tab", [7], 1) == "1 line with a tab (line 7)"
    assert about_lines("with a tab", [2, 7], 2) == "2 lines with a tab (lines 2, 7)"
    assert about_lines("with a tab", [2, 7], 1200) == "1,200 lines with a tab (lines 2, 7, ...)"
