"""Figures 3 to 5 show what the paper's do: of which heads, and from which words."""

import dataclasses

import numpy as np

from flaxformer_mt.attention.weights import Picked
from flaxformer_mt.decoding.teacher_forcing import Attention
from flaxformer_mt.figures.find import AttendedSentence
from flaxformer_mt.reproduction import pictures
from tests.figures.examples import made_up

PIECES = ("▁the", "▁dog", "▁that", "▁we", "▁saw", "▁lost", "▁its", "▁foot", "ball", ".", "</s>")
SENTENCE = AttendedSentence(number=1, src="the dog that we saw lost its football.", tgt="x")


def attended(*, pronoun: tuple[float, ...]) -> Attention:
    """Layer 2: head 1 looks from "ball" to "dog", the others from "its" to "dog" as much as said.

    Heads 1 and 2 follow a few more links, of several lengths; layer 1 looks at the end mark alone.
    """
    size, count = len(PIECES), 1 + len(pronoun)
    encoder = np.zeros((2, count, size, size), np.float32)
    encoder[:, :, :, -1] = 1
    links = [(0, 8, 1, 1.0), (0, 3, 1, 0.9), (0, 2, 4, 0.9), (1, 4, 2, 0.5), (1, 5, 1, 0.5)]
    links += [(head, 6, 1, weight) for head, weight in enumerate(pronoun, start=1)]
    for head, row, column, weight in links:
        if head < count:
            encoder[1, head, row, [column, -1]] = weight, 1 - weight
    return dataclasses.replace(made_up(PIECES, ("▁x", "</s>"), layers=2), encoder=encoder)


def drawn(folder, monkeypatch, *, pronoun):
    """What was picked for each file, and which figures there is no head for."""
    files, said = dict[str, Picked](), list[str]()
    monkeypatch.setattr(pictures, "sentences_of", lambda *_, **__: [SENTENCE])
    monkeypatch.setattr(pictures, "attend", lambda *_: attended(pronoun=pronoun))
    monkeypatch.setattr(pictures, "line_drawing", lambda picked: picked)
    monkeypatch.setattr(pictures, "rendered", lambda picked, *_, **__: picked)
    monkeypatch.setattr(pictures, "write_bytes", lambda path, one: files.update({path.name: one}))
    pictures.draw_attention(folder, None, ["x"], pronouns=frozenset({"its"}), say=said.append)
    return files, [line.partition(": not drawn")[0] for line in said if "not drawn" in line]


def test_what_each_figure_shows_and_what_no_head_does_is_named(tmp_path, monkeypatch):
    files, missing = drawn(tmp_path, monkeypatch, pronoun=(0.9, 0.5, 0.7))
    assert {
        name: (picture.layer, picture.heads, picture.queries) for name, picture in files.items()
    } == {
        # All pieces of "football", without the full stop.
        "figure3_layer2_all_heads_one_word.svg": (2, (1, 2, 3, 4), (7, 8)),
        "figure4_layer2_head2.svg": (2, (2,), None),
        "figure4_layer2_head2_head4_one_word.svg": (2, (2, 4), (6,)),
        "figure5_layer2_head1.svg": (2, (1,), None),
        "figure5_layer2_head2.svg": (2, (2,), None),
    }
    assert not missing
    (tmp_path / "figure4_layer6_head1.svg").touch()
    (tmp_path / "schedule.svg").touch()
    files, missing = drawn(tmp_path, monkeypatch, pronoun=(0.0,))
    assert missing == ["figure4 (anaphora)"]
    assert not any(name.startswith("figure4") for name in files)
    assert [path.name for path in tmp_path.iterdir()] == ["schedule.svg"]
