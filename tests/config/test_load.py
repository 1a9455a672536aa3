"""Config files and overrides: what reaches the frozen config, and errors that lead to the line."""

import dataclasses
import itertools
from pathlib import Path

import pytest

from flaxformer_mt.api.settings import sized_by_text
from flaxformer_mt.config import (
    ConfigError,
    flatten,
    freeze,
    read_config,
    thaw,
    uneven_heads,
)
from flaxformer_mt.config.load import Draft, apply_overrides, built_in_names, find_config
from flaxformer_mt.config.sizes import LITTLE, MUCH, TYPICAL, TextSize


@pytest.fixture
def write(tmp_path):
    """Writes the body of a config file (line 1 is its import) and returns its path."""
    numbers = itertools.count()

    def write(body):
        path = tmp_path / f"config_{next(numbers)}.py"
        path.write_text(f"from flaxformer_mt.config import corpus, default_config\n{body}")
        return str(path)

    return write


def refused(*overrides, spec="files"):
    with pytest.raises(ConfigError) as error:
        read_config(spec, overrides)
    return str(error.value)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("name=a b=c", "a b=c"),
        ("training.steps=100_000", 100_000),
        ("model.dropout=0", 0.0),
        ("model.remat=False", False),
        ("training.freeze=encoder/*,embedding/shared", ("encoder/*", "embedding/shared")),
        ("training.freeze=", ()),
        ("mesh.data=-1", -1),
    ],
)
def test_override_is_read_as_the_settings_type(override, value):
    got = read_config("files", [override])
    for part in override.partition("=")[0].split("."):
        got = getattr(got, part)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("sides", "said", "languages"),
    [
        (["train.de.gz", "valid.fr"], [], ("de", "fr")),
        (["a.b/train.tok.pt_BR.txt.xz", "fr"], [], ("pt_BR", "fr")),
        (["train.src", "train.en.tok"], [], "'data.src_lang' must be set: no file name shows it"),
        (["train.fr.tok", "train.es.tok"], [], ("fr", "es")),
        (["train.zh.bak", "train.no.orig"], [], ("zh", "no")),
        (["train.fr.32k", "train.es.32k"], [], ("fr", "es")),
        (["train.fra", "train.swa"], [], ("fr", "sw")),
        (["train.ger.gz", "train.cmn"], [], ("de", "zh")),
        (["fra_Latn.dev", "spa_Latn.dev"], [], ("fr", "es")),
        (["zho_Hans.dev", "kea_Latn.dev"], [], ("zh_Hans", "kea_Latn")),
        (["fr/train.txt", "es/train.txt"], [], ("fr", "es")),
        (["fr-train.txt", "es-train.txt"], [], ("fr", "es")),
        (["sentence_eng_Latn", "sentence_fra_Latn"], [], ("en", "fr")),
        (["en-fr/train.en", "en-fr/train.fr"], [], ("en", "fr")),
        (["a.fr-es.src", "a.fr-es.tgt"], ["src=fr", "tgt=es"], ("fr", "es")),
        # Other codes of a language, the region's among them, are the user's to choose.
        (["train.nb", "train.iw"], ["src=no", "tgt=he"], ("no", "he")),
        (["train.no", "train.he"], ["src=nb", "tgt=iw"], ("nb", "iw")),
        (["train.en", "train.de"], ["src=eng", "tgt=de_DE"], ("eng", "de_DE")),
        (["fr/train.txt", "es/train.txt"], ["src=en", "tgt=de"], ("en", "de")),
        (["train.en", "train.nb"], ["tgt=sv"], "but 'data.train.a.tgt' = 'train.nb' names 'nb'"),
        (["train.pt", "train.de"], ["src=pt-BR"], ("pt-BR", "de")),
        (["train.fr", "train.txt"], [], "'data.tgt_lang' must be set: no file name shows it"),
        (["train.en", "train.fr"], ["tgt=de"], "'data.tgt_lang' = 'de', but 'data.train.a.tgt'"),
        (["train.en", "train.fr", "b.en", "b.de"], ["tgt=de"], ("en", "de")),
        (["train.en", "train.fr", "b", "b.de"], [], "'data.tgt_lang' must be set: 'data.train.a"),
    ],
)
def test_languages_are_those_that_files_are_named_for(sides, said, languages):
    keys = ("train.a.src", "train.a.tgt", "valid.src", "valid.tgt")
    overrides = [f"data.{key}={name}" for key, name in zip(keys, sides, strict=False)]
    overrides += [f"data.{setting.replace('=', '_lang=')}" for setting in said]
    if isinstance(languages, str):
        assert languages in refused(*overrides)
    else:
        data = read_config("files", overrides).data
        assert (data.src_lang, data.tgt_lang) == languages


@pytest.mark.parametrize(
    ("kind", "path", "keys", "languages"),
    [
        ("tsv", "fr-es.tsv", None, ("fr", "es")),
        ("tsv", "data/train.fr-es.tsv.gz", None, ("fr", "es")),
        ("tsv", "train.spa-fra.clean.tsv", None, ("es", "fr")),
        ("tsv", "en-pt_BR.tsv", None, ("en", "pt_BR")),
        ("tsv", "es-ar.tsv", None, ("es", "ar")),
        ("jsonl", "train.fr-es.jsonl", ("source", "target"), ("fr", "es")),
        ("jsonl", "train.es-fr.jsonl", ("fr", "es"), ("fr", "es")),
        ("hf", "hf://datasets/ORG/NAME/fr-es/*.parquet", ("a", "b"), ("fr", "es")),
        # `xx` is no language.
        ("tsv", "train.fr-xx.tsv", None, ("en", "de")),
    ],
)
def test_a_path_s_pair_of_languages_is_read(kind, path, keys, languages):
    overrides = {"data.train.a.kind": kind, "data.train.a.path": path}
    if keys is not None:
        overrides |= {"data.train.a.src": keys[0], "data.train.a.tgt": keys[1]}
    data = read_config("files", overrides).data
    assert (data.src_lang, data.tgt_lang) == languages
    # It may be ordered by the alphabet, so that a setting is no contradiction.
    if keys != ("fr", "es"):
        read_config("files", overrides | {"data.src_lang": "cs", "data.tgt_lang": "pl"})


ASSUMED = "languages: assuming data.src_lang=en and data.tgt_lang=de, since no file name"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["data.train=src-train.txt,tgt-train.txt"], ASSUMED),
        (["data.train=train.es-fr.src,train.es-fr.tgt"], "data.src_lang=es and data.tgt_lang=fr"),
        (
            ["data.train.a.kind=tsv", "data.train.a.path=en-de/fr-es.tsv"],
            "src_lang=fr and data.tgt",
        ),
        (["data.train.a.kind=tsv", "data.train.a.path=a.tsv"], ASSUMED),
        (["data.train=a,b", "data.tgt_lang=fr"], "languages: assuming data.src_lang=en, since no"),
        (["data.train=fr/t,es/t"], "data.tgt_lang=es, from 'data.train.train.src' = 'fr/t' and"),
        (["data.train=a.en,a.de"], ""),
        (["data.train=a,b", "data.src_lang=en", "data.tgt_lang=fr"], ""),
        (["data.train.a.kind=synthetic", "data.train.a.size=9"], ""),
        ([], ""),
    ],
)
def test_languages_that_are_assumed_are_told(overrides, said):
    messages = []
    config = read_config("files", overrides, say=messages.append)
    assert len(messages) == bool(said) and said in "".join(messages)
    # A run that has recorded them has been told.
    read_config("files", overrides, say=messages.append, recorded=config)
    assert len(messages) == bool(said)


PACKED = ["data.batch.form=pack", "data.batch.src_length=9", "data.batch.tgt_length=9"]
MIXED = ["data.train.a.weight=1", "data.train.a.src=a", "data.train.a.tgt=b", "data.epoch_pairs=9"]
WORDS = ["data.vocabulary.tgt_types=words", "data.vocabulary.tgt_words=S", "model.tie=none"]
WORDS += ["data.vocabulary.shared=false"]
EXCLUDING = [
    # What there is, what is given, and what has its default again.
    (["data.valid=a.en,a.de"], "data.valid_fraction=0.1", "data.valid.src"),
    (["data.valid_fraction=0.1"], "data.valid=a.en,a.de", "data.valid_fraction"),
    (PACKED, "data.batch.form=bucket", "data.batch.tgt_length"),
    (MIXED, "data.train=c,d", "data.epoch_pairs"),
    (WORDS, "data.vocabulary.tgt_types=pieces", "data.vocabulary.tgt_words"),
]


@pytest.mark.parametrize(("there", "given", "key"), EXCLUDING)
def test_what_is_given_replaces_what_excludes_it(there, given, key):
    before = thaw(read_config("files", there))
    assert freeze(before, "a run")
    apply_overrides(before, [given])
    assert not flatten(freeze(before, "a run"))[key]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], ""),
        (["model.num_heads=16", "model.d_k=32", "model.d_v=32"], ""),
        (["model.num_heads=1"], "1 head of d_k = 64: width 64, 1 head of d_v = 64: width 64, "),
        (["model.num_heads=1"], "have model.d_k = model.d_v = 512"),
        (["model.d_model=1024"], "but model.d_model is 1,024; the paper's model would have"),
        (["model.d_k=32"], "note: 8 heads of d_k = 32: width 256, but model.d_model is 512"),
        (["model.num_heads=7"], "7 heads of d_k = 64: width 448"),
    ],
)
def test_heads_that_are_not_as_wide_as_the_model_are_said(changes, said):
    note = uneven_heads(read_config("wmt14_en_de", changes).model)
    assert said in note and bool(said) == bool(note)


def test_one_axis_of_the_mesh_takes_the_remaining_devices():
    mesh = read_config("files", ["mesh.fsdp=-1"]).mesh
    assert (mesh.data, mesh.fsdp) == (1, -1)
    assert "may be -1" in refused("mesh.fsdp=-1", "mesh.data=-1")


def test_both_of_two_that_exclude_each_other_are_refused():
    both = ["data.valid_fraction=0.1", "data.valid=a.en,a.de"]
    assert "but 'data.valid' is set too" in refused("data.train=a.en,a.de", *both)


def test_corpora_are_added_and_changed_by_name():
    mine = ["data.train.mine.src=a.en", "data.train.mine.tgt=a.de"]
    tsv = ["data.train.other.kind=tsv", "data.train.other.path=b.tsv"]
    grammar = ["data.test.news.kind=synthetic", "data.test.news.size=1_0"]
    config = read_config("files", [*mine, *tsv, *grammar])
    assert [(item.name, item.kind, item.src, item.path) for item in config.data.train] == [
        *(("mine", "files", "a.en", ""), ("other", "tsv", "", "b.tsv"))
    ]
    assert [(item.name, item.size) for item in config.data.test] == [("news", 10)]
    (changed,) = read_config("multi30k", ["data.train.multi30k.src=other.en"]).data.train
    (plain,) = read_config("multi30k").data.train
    assert (changed.src, changed.tgt) == ("other.en", plain.tgt)


@pytest.mark.parametrize(
    ("spec", "override", "wanted"),
    [
        (
            "wmt14_en_de",
            "training.schedule.peak=1",
            "'training.schedule.kind' = 'paper': leave",
        ),
        (
            "multi30k",
            "training.schedule.factor=2",
            "'training.schedule.kind' = 'peak': leave",
        ),
        ("quickstart", "data.train.grammar.src=mine.en", "kind 'synthetic' (only on 'files' or"),
        ("multi30k", "data.train.multi30k.path=a.tsv", "kind 'files' (only on 'tsv' or 'csv'"),
        ("multi30k", "data.train.multi30k.split=train[:9]", "kind 'files' is read whole"),
        ("multi30k", "data.valid.data_dir=sets", "kind 'files' (only on 'tfds')"),
        ("multi30k", "data.valid.weight=2", "only training corpora have weights"),
        ("table3", "training.patience=3", "needs 'training.validate_every' > 0"),
    ],
)
def test_what_nothing_would_read_is_a_mistake(spec, override, wanted):
    name = override.partition("=")[0]
    overrides = [override, *["training.validate_every=0"][: "patience" in override]]
    said = refused(*overrides, spec=spec)
    assert said.startswith(f"{spec}: '{name}' = ") and wanted in said


def test_what_is_left_over_of_another_kind_is_no_mistake():
    settings = ["data.valid.kind=files", "data.valid.src=a.en", "data.valid.tgt=a.de"]
    settings.append("training.schedule.kind=paper")
    config = read_config("quickstart", settings)
    assert config.data.valid.split == "valid" and config.data.valid.size
    assert config.training.schedule.peak
    with pytest.raises(ConfigError, match=r"schedule.peak' = 0.1 .*; 'data.valid.size' = 9"):
        read_config("quickstart", [*settings, "data.valid.size=9", "training.schedule.peak=0.1"])


def test_a_test_set_called_valid_is_a_mistake_too():
    said = refused("data.test.valid.src=a.en", "data.test.valid.tgt=a.de")
    assert "'data.test.valid': " in said and said.endswith("rename the test set")


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("model.dmodel=3", "unknown key 'model.dmodel'; did you mean 'd_model'?"),
        ("train.steps=3", "unknown key 'train'; did you mean 'training.steps'?"),
        ("batch.tokens=3", "unknown key 'batch'; did you mean 'data.batch.tokens'?"),
        ("model.dropout=much", "'much' is not of type float"),
        ("model.remat=1", "must be true or false"),
        ("model.remat", "write --config.KEY=VALUE"),
        ("mesh=3", "'mesh' is a group of settings: data, fsdp, tensor"),
        ("model.d_model.x=3", "'model.d_model' is a single setting and has no 'x'"),
        ("data.train=x", "write --config.data.train=SRC,TGT (two files) or --config.data.train.N"),
        ("data.train=x.parquet", "for one file of both sides (hf) write --config.data.train=x.par"),
        (
            "data.valid=x.jsonl.gz",
            "for one file of both sides (jsonl) write --config.data.valid=x.jsonl.gz,SRC,TGT with",
        ),
        ("data.train=x.jsonl,en", "for one file of both sides (jsonl) write --config.data.train=x"),
        ("data.train=x.tsv,1", "for one file of both sides (tsv) write --config.data.train=x.tsv"),
        (
            "data.train=x.csv",
            "for one file of both sides (csv) write --config.data.train=x.csv,S",
        ),
        ("data.train.a.source=x", "unknown key 'data.train.a.source'; did you mean 'src'?"),
        ("data.valid.name=x", "unknown key 'data.valid.name'; valid names: kind, src"),
    ],
)
def test_a_wrong_override_is_quoted(override, wanted):
    assert refused(override).startswith(f"--config.{override}: {wanted}")


def test_a_file_is_found_by_path_and_a_built_in_one_by_name(write, tmp_path, monkeypatch):
    path = write("def get_config(variant=''):\n    return default_config()\n")
    assert find_config(path) == Path(path)
    for name in built_in_names():
        assert find_config(name).name == f"{name}.py"
    # The README's commands name configs/NAME.py, from whichever folder.
    monkeypatch.chdir(tmp_path)
    assert read_config("configs/quickstart.py") == read_config("quickstart")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("multi30", "multi30: no such config file; did you mean 'multi30k'?"),
        ("nowhere/x.py:big", "nowhere/x.py: no such config file; check the path"),
    ],
)
def test_a_missing_file_names_the_nearest_built_in_one(spec, said):
    assert refused(spec=spec).startswith(said)


PARTIAL = "import ml_collections\ndef get_config(v):\n    return ml_collections.ConfigDict({})\n"
CHANGE = "def get_config(variant=''):\n    config = default_config()\n    {}\n    return config\n"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("x = 1\n", ": defines no get_config(variant)"),
        ("def get_config(variant)\n", ":2: expected ':'"),
        ("import no_such_module\n", ":2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("\nx = y\n", ":3: NameError: name 'y' is not defined"),
        ("x = int('a')\n", ":2: ValueError: invalid literal for int()"),
        ("x = default_config().modell\n", ":2: unknown key 'modell'; did you mean 'model'?"),
        ("config.model.num_head = 3", ":4: unknown key 'num_head'; did you mean 'num_heads'?"),
        ("config.model.d_model = 'wide'", ":4: TypeError: Could not override field 'd_model'"),
        ("config.data.train.a = corpus(source='x')", ":4: corpus(...): unknown key 'source'; did"),
        ("config.model.d_model = 0", ": 'model.d_model' = 0 must be at least 1"),
        ("def get_config(v=''):\n    return 3\n", ": get_config returned 3, not a ConfigDict"),
        ("def get_config():\n    pass\n", ": TypeError: get_config() takes 0 positional arguments"),
        (PARTIAL.format('{"data": {"train": 3}}'), ": 'data.train' is a group, not 3"),
    ],
)
def test_an_error_in_a_file_says_where(write, body, wanted):
    path = write(CHANGE.format(body) if body.startswith("config.") else body)
    assert refused(spec=path).startswith(f"{path}{wanted}")


def test_a_partial_config_takes_overrides(write):
    """Whatever of it is absent has its default, from a missing group to a corpus's key."""
    body = """
from ml_collections import ConfigDict

def get_config(variant=""):
    train = {"mine": {"src": "a.en", "tgt": "a.de"}}
    model = {"d_model": 16, "dropout": 0}
    name = "variant " + variant
    return ConfigDict({"name": name, "model": model, "data": {"train": train}}).lock()
"""
    overrides = ["training.schedule.warmup_steps=7", "model.d_ff=5", "model.dropout=0.5"]
    overrides += ["data.train.mine.weight=2", "data.train.other.path=b.tsv"]
    overrides += ["data.train.other.kind=tsv", "data.train.other.weight=1", "mesh.fsdp=1"]
    config = read_config(f"{write(body)}:v", overrides)
    assert config.name == "variant v"
    assert (config.training.schedule.warmup_steps, config.model.d_ff) == (7, 5)
    assert (config.model.d_model, config.model.dropout) == (16, 0.5)
    assert {
        corpus.name: (corpus.src, corpus.path, corpus.weight) for corpus in config.data.train
    } == {
        "mine": ("a.en", "", 2.0),
        "other": ("", "b.tsv", 1.0),
    }


def test_values_that_refer_to_others_or_wait_for_an_override(write):
    body = """
from ml_collections.config_dict import placeholder

def get_config(variant=""):
    config = default_config()
    config.model.d_ff = 4 * config.model.get_ref("d_model")
    config.data.folder = placeholder(str)
    with config.ignore_type():
        config.training.steps = "many"
    return config
"""
    config = read_config(write(body), ["model.d_model=32", "data.folder=here", "training.steps=3"])
    assert (config.model.d_ff, config.data.folder, config.training.steps) == (128, "here", 3)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        # A run's record reads like Python up to its first `true`.
        ("config.json", b'{"format_version": 1,\n"remat": true}\n', ": is not a Python file"),
        ("odd.py", b"\0\1\2\xff", ""),
        ("odd.py", "def get_config(v): pass".encode("utf-16"), ""),
    ],
)
def test_a_file_that_is_not_python_or_no_text_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    assert refused(spec=str(tmp_path / name)).startswith(f"{tmp_path / name}{said}")


def test_two_files_take_the_place_of_a_corpus_or_of_all(write):
    """A fine-tuned run's text is not that of the run whose settings it takes."""
    second_corpus = ["data.train.more.src=b.en", "data.train.more.tgt=b.de"]
    files = ["data.train=new.en,new.de", "data.valid=v.en,v.de", "data.test.own=t.en,t.de"]
    for overrides in (files, {"data.train": ("new.en", "new.de")}):
        (alone,) = read_config("quickstart", overrides).data.train
        assert (alone.name, alone.kind, alone.src, alone.size) == ("train", "files", "new.en", 0)
    data = read_config("quickstart", [*files, *second_corpus]).data
    assert {corpus.name for corpus in data.train} == {"train", "more"}
    assert [corpus.name for corpus in data.test] == ["grammar", "own"]
    assert (data.valid.kind, data.valid.tgt, data.valid.size) == ("files", "v.de", 0)
    for wrong in ("data.train=new.en", "data.train=", "data.valid=a,b,c", "data.train.x=,b"):
        with pytest.raises(ConfigError, match=f"config.{wrong}: write --config.*=SRC,TGT"):
            read_config("quickstart", [wrong])
    for value in (None, 5):
        with pytest.raises(ConfigError, match=f"data.train={value}: write --config.data.train="):
            read_config("quickstart", {"data.train": value})
    (alone,) = read_config("quickstart", {"data.train": Path("x.tsv")}).data.train
    assert (alone.kind, alone.path) == ("tsv", "x.tsv")


@pytest.mark.parametrize(
    ("written", "settings"),
    [
        ("x.tsv", ("tsv", "x.tsv", "", "")),
        ("x.TSV.gz", ("tsv", "x.TSV.gz", "", "")),
        ("x.jsonl,en,de", ("jsonl", "x.jsonl", "en", "de")),
        ("x.ndjson.zst,text.en,text.de", ("jsonl", "x.ndjson.zst", "text.en", "text.de")),
        ("hf://datasets/a/b/*.parquet,en,de", ("hf", "hf://datasets/a/b/*.parquet", "en", "de")),
        ("a.tsv,b.tsv", ("files", "", "a.tsv", "b.tsv")),  # two sides, whatever they are called
    ],
)
def test_one_file_of_both_sides_has_the_kind_that_its_name_ends_in(written, settings):
    for overrides in ([f"data.train={written}"], {"data.train": tuple(written.split(","))}):
        (alone,) = read_config("quickstart", overrides).data.train
        assert (alone.kind, alone.path, alone.src, alone.tgt) == settings
    data = read_config("quickstart", [f"data.valid={written}", f"data.train.more={written}"]).data
    assert data.valid.kind == settings[0]
    assert {corpus.kind for corpus in data.train} == {"synthetic", settings[0]}


TEXT = ["data.train=a.en,a.de"]


def for_tokens(tokens, *overrides, recorded=None):
    settings = [*TEXT, *overrides]
    return read_config("files", settings, recorded=recorded, text=TextSize(tokens))


def test_sizes_are_those_of_the_variant_for_so_many_tokens():
    for variant, tokens in (("tiny", LITTLE), ("small", TYPICAL.tokens), ("base", 10 * MUCH)):
        named = read_config(f"files:{variant}", TEXT)
        sized = dataclasses.replace(for_tokens(tokens), name=named.name)
        assert sized == named and sized.sizes == "given"


def test_what_the_user_sets_wins_over_the_corpus(tmp_path):
    """In the file or beside it, also where it is what the schema has by default."""
    assert for_tokens(LITTLE, "model.d_model=512", "model.d_ff=99").model.d_model == 512
    slow = for_tokens(LITTLE, "training.schedule.peak=0.001").training.schedule
    assert (slow.kind, slow.peak, slow.warmup_steps) == ("peak", 0.001, 600)
    text = find_config("files").read_text()
    text = text.replace("    return", "    config.model.d_ff = 64\n    return")
    (tmp_path / "wide.py").write_text(text)
    wide = read_config(str(tmp_path / "wide.py"), TEXT, text=TextSize(LITTLE))
    assert (wide.model.d_ff, wide.model.d_model) == (64, 128)
    assert for_tokens(LITTLE, "sizes=given").model.d_model == 512


def test_a_run_keeps_the_sizes_that_it_has_recorded():
    """Its text may have grown since, or be gone."""
    begun = for_tokens(LITTLE, "model.d_ff=64")
    assert for_tokens(MUCH, "model.d_ff=64", recorded=begun) == begun
    longer = for_tokens(MUCH, "model.d_ff=64", "training.steps=5000", recorded=begun)
    assert longer.training.steps == 5000 and longer.model == begun.model


def test_a_run_of_an_earlier_version_keeps_its_sizes():
    """Which were chosen by pairs, with other schedules and heads."""
    changes = ["model.d_model=256", "model.d_k=64", "model.d_v=64", "data.vocabulary.size=8000"]
    paper = ["training.schedule.kind=paper", "training.schedule.peak=0", "training.patience=0"]
    earlier = read_config("files", ["sizes=given", *TEXT, *changes, *paper])
    assert for_tokens(LITTLE, recorded=earlier) == earlier


def test_without_text_sizes_are_not_settled(monkeypatch):
    monkeypatch.setattr("flaxformer_mt.data.prepare.text_size.measured_text", lambda *_: 1 // 0)
    assert sized_by_text(Draft.of("files")).text is None
    assert not Draft.of("files").needs_text and Draft.of("files", TEXT).needs_text
    config = read_config("files")
    assert config.sizes == "corpus" and config.model == read_config("files:small").model


LEARNED = ["model.positions=learned"]


def test_learned_positions_of_a_new_run_have_the_factor_of_tokens():
    assert read_config("quickstart", LEARNED).model.position_scale == "sqrt_d_model"
    assert read_config("table3:e_learned_positions").model.position_scale == "sqrt_d_model"


def test_a_run_keeps_the_scale_of_its_positions():
    """One that recorded none, "auto", is from before the setting: its positions have no factor."""
    new = read_config("quickstart", LEARNED)
    for scale in ("auto", "one", "sqrt_d_model"):
        model = dataclasses.replace(new.model, position_scale=scale)
        recorded = dataclasses.replace(new, model=model)
        resumed = read_config("quickstart", LEARNED, recorded=recorded)
        assert resumed.model.position_scale == scale


def test_sinusoids_have_no_scale():
    assert read_config("quickstart").model.position_scale == "auto"
    with pytest.raises(ConfigError, match="'model.position_scale' = 'one' needs 'model.positions'"):
        read_config("quickstart", ["model.position_scale=one"])


@pytest.mark.parametrize(("pairs", "fraction"), [(300, 0.1), (12_000, 0.083), (3_000_000, 0.00033)])
def test_training_text_is_held_out_where_nothing_else_validates(pairs, fraction):
    said: list[str] = []
    config = read_config(
        "files",
        ["data.train=a.en,a.de"],
        text=TextSize(24 * pairs, pairs=pairs),
        say=said.append,
    )
    assert config.data.valid_fraction == fraction
    assert said == [
        f"no validation text is given: {fraction:.1%} of the training text is held out for it "
        "(data.valid_fraction)"
    ]


def test_a_resumed_run_holds_out_the_same_text():
    recorded = read_config("files:tiny", ["data.train=a.en,a.de", "data.valid_fraction=0.05"])
    assert read_config("files:tiny", ["data.train=a.en,a.de"]).data.valid_fraction == 0.01
    resumed = read_config("files:tiny", ["data.train=a.en,a.de"], recorded=recorded)
    assert resumed.data.valid_fraction == 0.05


@pytest.mark.parametrize(
    "corpora",
    [
        [],
        ["data.train=a.en,a.de", "data.valid=v.en,v.de"],
        ["data.train.a=a.en,a.de", "data.train.b=b.en,b.de"],
    ],
)
def test_nothing_is_held_out_without_one_corpus_or_beside_validation_text(corpora):
    assert read_config("files:tiny", corpora).data.valid_fraction == 0


@pytest.mark.parametrize("steps", [0, -5])
def test_steps_out_of_bounds_are_refused_where_sizes_follow_them(steps):
    with pytest.raises(ConfigError, match=r"'training\.steps'"):
        read_config("files", [f"training.steps={steps}"])


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("<x1/>,@@URL@@", ("<x1/>", "@@URL@@")),
        ("['a,b', \"(\"]", ("a,b", "(")),
        ('("<x1/>","@@")', ("<x1/>", "@@")),
        ("(NP,)NP", ("(NP", ")NP")),
        ("", ()),
    ],
)
def test_texts_are_listed_with_commas_or_as_python_writes_them(text, symbols):
    config = read_config("quickstart", [f"data.vocabulary.symbols={text}"])
    assert config.data.vocabulary.symbols == symbols
