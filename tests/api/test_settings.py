"""Which settings the arguments of `train` mean, and those of `read_config`."""

import dataclasses
import importlib
from pathlib import Path

import pytest

import flaxformer_mt as fm
from flaxformer_mt.api import settings, training
from flaxformer_mt.api.settings import SettingsRequest, continued, settled
from flaxformer_mt.api.speed import Pacing
from flaxformer_mt.api.training import recorded
from flaxformer_mt.config import ConfigError, read_config, to_dict
from flaxformer_mt.config.load import Draft
from flaxformer_mt.parallel.processes import Processes
from flaxformer_mt.rundir.layout import RunDirectory, create, read_record
from flaxformer_mt.training import program
from tests.decoding.runs import make_run

MADE = ("kind=synthetic", "size=9")
TEXT = [f"data.{corpus}.{setting}" for corpus in ("train.made", "valid") for setting in MADE]
ON, OFF = "training.deterministic=true", "training.deterministic=false"


def made(folder: Path, override: str) -> str:
    create(folder, to_dict(read_config("quickstart", [override])), ["train"])
    return str(folder)


@pytest.mark.parametrize("override", [ON, OFF])
def test_settings_are_those_of_the_run_that_it_will_be(tmp_path, override):
    """Determinism must be known before processes join each other, where no run is there yet."""
    new, started = RunDirectory(tmp_path / "new"), made(tmp_path / "other", override)
    meant = override == ON
    opposite = OFF if meant else ON

    def deterministic(run, *arguments):
        return settled(RunDirectory(run), *arguments).training.deterministic

    assert deterministic(new, None, [], started) == meant
    assert deterministic(new, None, [opposite], started) != meant
    assert deterministic(new, "quickstart", [override], started) == meant
    assert deterministic(started, None, [], None) == meant
    # Once the run is there, it is no longer the other one that decides.
    assert deterministic(made(tmp_path / "begun", opposite), None, [], started) != meant


def test_determinism_is_set_before_a_device_is_asked_for(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(training, "make_deterministic", lambda: order.append("set"))
    monkeypatch.setattr(training, "with_dtype", lambda *_: order.append("asked") or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        training.train(read_config("quickstart", [ON]), tmp_path / "run")
    assert order == ["set", "asked"]


def test_what_an_override_says_in_vain_is_refused_with_and_without_a_config(tmp_path):
    """But not what was recorded once: that run goes on."""
    none = ["training.patience=0", "training.validate_every=0"]
    quiet = RunDirectory(tmp_path / "quiet")
    create(quiet.path, to_dict(read_config("quickstart", none)), ["train"])
    vain = "'training.patience' = 3 needs 'training.validate_every' > 0"
    for spec, overrides in ((None, []), ("quickstart", none)):
        with pytest.raises(ConfigError, match=vain):
            settled(quiet, spec, [*overrides, "training.patience=3"])
    with pytest.raises(ConfigError, match=f"quiet: {vain}"):
        settled(RunDirectory(tmp_path / "new"), None, ["training.patience=3"], str(quiet))
    config = read_config("quickstart", none)
    patient = dataclasses.replace(config, training=dataclasses.replace(config.training, patience=3))
    recorded_run = RunDirectory(tmp_path / "recorded")
    create(recorded_run.path, to_dict(patient), ["train"])
    again = [*none, "training.patience=3"]  # as in the command that began it
    for spec, overrides in ((None, []), ("quickstart", again)):
        changes = [*overrides, "training.log_every=7"]
        config, changed = continued(recorded_run, settled(recorded_run, spec, changes))
        assert config.training.patience == 3 and changed.keys() == {"training.log_every"}


def test_a_run_keeps_the_dtype_that_auto_meant_when_it_began(tmp_path, monkeypatch):
    """Also on a machine where auto would mean the other; until it has begun, it is open."""

    def begun(spec: str | None, machine: str, *overrides: str) -> str:
        monkeypatch.setattr(program, "fastest_dtype", lambda device: machine)
        settings = settled(run, spec, [*(TEXT if spec else ()), *overrides])
        with recorded(run, settings, ["train"], Processes()) as (config, _):
            assert config is not None
            assert read_record(run).config["model"]["dtype"] == config.model.dtype
            return config.model.dtype

    run = RunDirectory(tmp_path / "run")
    assert begun("files", "bfloat16") == "bfloat16"
    assert begun("files", "float32") == begun(None, "float32") == "bfloat16"
    assert begun(None, "float32", "model.dtype=float32") == "float32"
    run = RunDirectory(tmp_path / "prepared")
    create(run.path, to_dict(read_config("files", [])), ["prepare"])
    assert begun(None, "float32") == "float32"
    assert begun("files", "bfloat16") == "float32"


def test_settings_from_python_are_values_under_the_names_of_the_command_line():
    values = {"model.dropout": 0, "model.remat": True, "name": Path("3")}
    texts = [f"{name}={value}" for name, value in values.items()]
    assert fm.load_config("quickstart", values) == read_config("quickstart", texts)
    frozen = fm.load_config("quickstart", {"training.freeze": ["encoder/*", "decoder/*"]})
    assert frozen.training.freeze == ("encoder/*", "decoder/*")
    for wrong, said in {"steps": "must be of type int", "freeze": "must be a list"}.items():
        with pytest.raises(ConfigError, match=f"'training.{wrong}' = 1.5: {said}"):
            fm.load_config("quickstart", {f"training.{wrong}": 1.5})
    with pytest.raises(ConfigError, match="'training.stepps'; did you mean 'steps'"):
        fm.load_config("quickstart", {"training.stepps": 7})


def test_a_run_s_settings_are_loaded_by_its_folder(tmp_path):
    folder = made(tmp_path / "run", ON)
    assert fm.load_config(folder).training.deterministic
    assert fm.load_config(folder, {"training.steps": 7}).training.steps == 7


def started_from(folder, source, *overrides):
    """The settings of a run that starts from one with the settings `source`."""
    create(folder / "source", to_dict(source), ["train"])
    request = SettingsRequest(RunDirectory(folder / "new"), None, overrides, str(folder / "source"))
    return request.settled()


def test_a_run_from_another_holds_out_as_much_as_its_own_text_allows(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"a.{language}").write_text("".join(f"line {n}\n" for n in range(200)))
    text = f"data.train={tmp_path / 'a.en'},{tmp_path / 'a.de'}"
    million = read_config("files:tiny", ["data.train=m.en,m.de", "data.valid_fraction=0.001"])
    assert started_from(tmp_path / "one", million, text).data.valid_fraction == 0.1
    chosen = started_from(tmp_path / "two", million, text, "data.valid_fraction=0.2")
    assert chosen.data.valid_fraction == 0.2
    assert started_from(tmp_path / "three", million).data.valid_fraction == 0.001


def test_a_run_from_another_takes_over_steps_but_no_minutes(tmp_path):
    source = read_config("files:tiny", ["data.train=m.en,m.de"])
    source = dataclasses.replace(
        source, training=dataclasses.replace(source.training, minutes=20.0)
    )
    new = started_from(tmp_path / "one", source)
    # As many as the minutes were expected to have room for: the run's own are half as many again.
    assert (new.training.minutes, new.training.steps) == (0, round(source.training.steps / 1.5))
    with pytest.raises(ConfigError, match="created with --config, and there are .* steps already"):
        started_from(tmp_path / "two", source, "training.minutes=5")


def test_a_run_whose_config_has_other_sizes_since_is_resumed_without_it(tmp_path):
    """As one begun with `files:tiny`, whose sizes a later version changes."""
    run = make_run(tmp_path / "run", {1: None})
    text = ["data.train=a.en,a.de"]
    with pytest.raises(ConfigError, match="'model.d_model' was .*; leave out --config to resume"):
        continued(run, settled(run, "files:tiny", text))
    _, changed = continued(run, settled(run, None, []))
    assert not changed


@pytest.mark.parametrize("command", ["plan", "doctor"])
def test_only_trainings_are_paced(command, monkeypatch):
    """A plan's JAX must not start before the compiler is chosen, nor a doctor's before it joins."""
    module = importlib.import_module(f"flaxformer_mt.cli.{command}")

    def asked(spec, overrides, *, paced):
        raise ConfigError(f"paced: {paced}")

    monkeypatch.setattr(module, "sized_config", asked)
    words = ["--topology", "v5e:2x4"] if command == "plan" else []
    with pytest.raises(ConfigError, match="paced: False"):
        module.main([*words, "--config", "files"], command, "")


@pytest.mark.parametrize(
    ("step", "overrides", "width", "line"),
    [
        (1.0, [], 128, "as for 270,000, since training.minutes allows no more: 2 + 2 layers"),
        (0.001, [], 160, "different words): 3 + 2 layers of width 160"),
        (1.0, ["model.d_model=160"], 160, "different words): 3 + 2 layers of width 160"),
    ],
)
def test_a_time_too_short_for_the_text_s_model_gets_a_smaller_one(
    tmp_path, monkeypatch, capsys, step, overrides, width, line
):
    """On a machine whose steps last so long; a width of one's own stays."""
    measured = []

    def paced(draft, text):
        measured.append(text.affordable)
        return Pacing(step=step, compiling=5.0, validation=5.0, spent=3.0, text=text)

    monkeypatch.setattr(settings, "_measured_pacing", paced)
    for side in ("en", "de"):
        words = (f"{side}{number % 9000}" for number in range(325_000))
        lines = (" ".join(group) for group in zip(*[words] * 13, strict=True))
        (tmp_path / f"a.{side}").write_text("\n".join(lines), "utf-8")
    text = f"data.train={tmp_path}/a.en,{tmp_path}/a.de"
    draft = Draft.of("files", [text, "training.minutes=5", *overrides])
    sized = settings.sized_by_text(draft)
    assert sized.config.model.d_model == width and sized.text is not None
    assert line in " ".join(capsys.readouterr().err.split())
    # Measured again at the sizes that it gets, and both measurements take time.
    is_smaller = width == 128
    assert measured == [0, 270_000][: 1 + is_smaller]
    assert sized.pacing is not None and sized.pacing.spent == 3.0 * (1 + is_smaller)
