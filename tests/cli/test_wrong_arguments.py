"""Wrong arguments: one line that names them, before anything is read or begun."""

import json

import pytest

from flaxformer_mt.cli.arguments import make_parser
from flaxformer_mt.planning import SETTINGS

OF_A_RUN = ("average", "attention", "export", "score", "serve", "train", "translate")
CALLS = [
    # Numbers, and what else is read the same way by several commands.
    ("average --last 0", "'0' must be an integer from 1"),
    ("translate --beam-size 9000000", "'9000000' must be an integer from 1 to 65,536"),
    ("translate --length-penalty nan", "'nan' must be a finite number ≥ 0"),
    ("export --format huggingface --output x --bound 0", "'0' must be a number > 0"),
    ("translate --weights ²", "write average, best, latest, auto, or a step's"),
    ("translate --patience 1e30", "'1e30' must be at most 1,000"),
    ("translate --length-penalty 1e30", "'1e30' must be at most 10"),
    ("translate --coverage-penalty 1e30", "'1e30' must be at most 1,000,000"),
    ("translate --diversity 1e30", "'1e30' must be at most 1,000,000"),
    ("translate --max-ratio 1e300", "'1e300' must be at most 1,000"),
    ("translate --temperature 1e30", "'1e30' must be at most 1,000,000,000"),
    ("translate --output x --shard 0/99999999999999999999", "and at most 100,000 parts"),
    ("translate --output x --shard 0/100001", "and at most 100,000 parts"),
    ("translate --output x --shard ²/3", "must be I/N"),
    ("translate --output x --output-shards 999999999", "must be an integer from 1 to 100,000"),
    ("score --output x --join 999999999", "must be an integer from 1 to 100,000"),
    ("evaluate --hypotheses o --ref r --resamples 999999999", "from 0 to 1,000,000"),
    ("compare a b --trials 999999999", "from 1 to 1,000,000"),
    ("export --format huggingface --output x --bound 1e99", "must be at most 1,000,000,000"),
    ("serve --timeout 1e30", "'1e30' must be at most 1,000,000,000"),
    ("reproduce table3 --scale 1e30", "'1e30' must be at most 1,000,000,000"),
    ("figures schedule --output a.svg --steps 999999999", "from 1 to 1,000,000"),
    ("config --config quickstart --config.decoding.patience=1e30", "must be at most 1,000"),
    ("config --config quickstart --config.decoding.max_ratio=1e30", "must be at most 1,000"),
    # Misspelt.
    ("trian", "no command 'trian'; did you mean 'train'?"),
    ("train --wrokdir .", "--wrokdir: did you mean --workdir?"),
    ("train --validate-every=3", "did you mean --config.training.validate_every?"),
    ("train --learning-rate 0.1", "did you mean --config.training.schedule.peak?"),
    ("train --lr=0.1", "--lr: did you mean --config.training.schedule.peak?"),
    ("train --batch-size 64", "did you mean --config.data.batch.tokens?"),
    ("train --max-tokens 4096", "did you mean --config.data.batch.tokens?"),
    ("train --epochs 3", "did you mean --config.training.steps?"),
    ("train --max-update 3", "did you mean --config.training.steps?"),
    ("train --dropout 0.3", "did you mean --config.model.dropout?"),
    ("train --layers 3", "--config.model.encoder_layers and --config.model.decoder_layers?"),
    ("train --warmup-updates 3", "did you mean --config.training.schedule.warmup_steps?"),
    ("train --update-freq 3", "did you mean --config.training.optimizer.accumulation?"),
    ("train --accum_count 3", "did you mean --config.training.optimizer.accumulation?"),
    ("train --hidden-size 3", "did you mean --config.model.d_model?"),
    ("train --save-dir x", "--save-dir: did you mean --workdir?"),
    ("train --train_from x", "--train_from: did you mean --init-from?"),
    ("train --fp16", "did you mean --config.model.dtype?"),
    ("config --config quickstart --config.training.learning_rate=1", "'training.schedule.peak'?"),
    ("config --config quickstart --config.batch_size=1", "did you mean 'data.batch.tokens'?"),
    ("translate in.en --workdir .", "in.en; name a file with --input FILE; text comes from"),
    ("train --data.train=a,b", "did you mean --config.data.train?"),
    ("config --explain trainig.schedule", "no such group; did you mean 'training.schedule'?"),
    # Settings of which config?
    ("doctor --config.mesh.fsdp=2", "needs a config to change: add --config"),
    ("config --explain --config.mesh.fsdp=2", "leave out --config"),
    # A second value would replace the first in silence.
    ("evaluate --hypotheses h --ref a --ref b", "--ref is given twice: the second would replace"),
    ("evaluate --workdir x --set valid --set test", "--set is given twice"),
    ("compare a b --ref r --ref r", "replace the first; write all after one --ref"),
    ("compare --ref r a b", "--ref takes all words that follow it: write it last"),
    ("translate --input a --inp b", "--input is given twice"),
    ("translate --terminology a --terminology b", "--terminology is given twice"),
    ("score --src a --tgt b --tgt c", "--tgt is given twice"),
    ("train --workdir a --init-from b --init-from c", "--init-from is given twice"),
    (
        "train --workdir a --config.data.train=a,b --config.data.train=c,d",
        "--config.data.train is given twice: the second would replace the first",
    ),
    # Of which run?
    ("train --workdir new", "no run here yet: give --config FILE"),
    ("train --workdir new --config quickstart --init-from absent", "absent: no such directory"),
    # Which process this is, and what it traces.
    ("train --coordinator host:1", "go together"),
    ("train --coordinator h --num-processes 2 --process-id 0", "write HOST:PORT"),
    ("train --coordinator h:1 --num-processes 2 --process-id 2", "must be below"),
    ("train --profile-steps 7-9", "write A:B"),
    ("train --profile-steps 9:8", "A must be at least 1"),
    # How to search and to draw.
    ("translate --top-k 3", "and --seed need --sample"),
    ("translate --sample --diverse-groups 2", "are for beam search: leave out"),
    ("translate --sample --temperature 0", "temperature = 0.0 must be above 0"),
    ("translate --ensemble x --alignments", "needs a single model"),
    # Text in another encoding than UTF-8, as Python decodes it.
    ("translate --forbid Hund \udcfc", "--forbid: '\\udcfc' is not UTF-8"),
    ("translate --prefix \udcfc", "--prefix: '\\udcfc' is not UTF-8"),
    ("translate --suppress \udcfc", "--suppress: '\\udcfc' is not UTF-8"),
    ("translate --format jsonl --key \udcfc", "--key: '\\udcfc' is not UTF-8"),
    # Forms of lines.
    (
        "translate --format jsonl --output-format tsv",
        "--output-format: from jsonl you can write jsonl, text or moses, not tsv",
    ),
    ("translate --format html --scores", "--scores is for lines: leave it out with --format html"),
    ("translate --format xml --output-format text", "--output-format is for lines"),
    ("translate --format html --shard 0/2", "--shard is for lines"),
    ("translate --format xml --restart", "--restart is for lines"),
    ("translate --format html --ensemble x", "--ensemble is for lines"),
    ("translate --keep-elements code", "is for documents: add --format html, xml or markdown"),
    ("translate --shard 0/2", "--shard needs an output file"),
    ("score --output-shards 2", "--output-shards needs an output file"),
    ("score --join 2", "--join needs --output"),
    ("translate --tokens", "add --output-format jsonl"),
    ("translate --format jsonl --key ''", "--key is empty"),
    ("translate --prefix-key p", "add --format jsonl"),
    ("translate --translation-key de", "add --output-format jsonl"),
    ("translate --column 2", "--column is for columns: add --format tsv"),
    ("translate --append --format jsonl", "--append is for columns"),
    ("translate --join-lines --format tsv", "--join-lines is for plain text"),
    ("translate --format jsonl --key score", "under 'score', where the source is"),
    ("translate --output ''", "--output is empty: name a file"),
    ("score --src x", "--src and --tgt go together"),
    ("score --src x --tgt y --input z", "give either --input, or --src"),
    ("score --src x --tgt y --format jsonl", "--src and --tgt are plain text"),
    ("score --format jsonl --columns 1 2", "--columns is for --format tsv"),
    ("score --format jsonl --scored-key ''", "--scored-key is empty"),
    # Where, and with what beside the lines.
    ("translate --terminology-mode soft", "--terminology-mode is for --terminology"),
    ("score --ray-address host:1", "need --engine ray"),
    # What to score.
    ("evaluate", "give --workdir DIR to translate with a run, or --hypotheses FILE"),
    ("evaluate --hypotheses o", "needs --ref FILE, or --testset"),
    ("evaluate --hypotheses o --ref r --workdir x", "can't be used with --workdir"),
    ("evaluate --hypotheses o --ref r --comet-gpus 1", "--comet-gpus needs --comet"),
    ("evaluate --hypotheses o --ref r --tgt-lang German", "German: write a code such as de"),
    ("evaluate --workdir x --testset wmt14/full --langpair en-de --src s", "can't be used with"),
    ("evaluate --workdir x --src s --ref r --set valid", "leave out --set"),
    ("evaluate --workdir x --set valid --folder y", "the run itself holds the text of --set"),
    ("evaluate --workdir x --name n", "--name is for --src with --ref"),
    ("evaluate --workdir x --src s", "--src and --ref go together"),
    ("evaluate --testset wmt14/full", "--testset and --langpair go together"),
    ("compare a b --ref r --method bootstrap --trials 9", "--trials is for randomization"),
    ("compare a b --ref r --testset wmt14/full --langpair en-de", "--testset can't be used with"),
    # Pictures.
    ("attention", "give --src TEXT and --output FILE, or --find and --input FILE"),
    ("attention --find --input x --src a", "--src can't be used with --find"),
    ("attention --src a --output a.svg --draw x", "--draw needs --find"),
    ("attention --src a --output a.svg --size big", "'big' is not a size"),
    ("figures curves x --output a.svg --steps 9", "--steps has no effect on curves: leave it out"),
    # Plans, and the paper's rows.
    ("plan --config quickstart --topology=h100:9", "error: 'h100:9': write the card and how many"),
    ("plan --config quickstart --topology=h100s", "error: no 'h100s' is known here. GPUs: a10"),
    ("plan --config quickstart --topology=v5e:2x4 --lengths=64", "write SRC,TGT"),
    ("plan --config quickstart --topology=v5e:2x4 --decode --save-hlo=x", "no effect on --decode"),
    ("plan --config quickstart --topology=v5e:2x4 --shardings --lengths=8,8", "effect on --shard"),
    ("reproduce table3 --corpus toy", "go together"),
    ("reproduce table2 --folder x", "choose rows with --only (en_de_base, en_de_big, en_fr"),
    ("reproduce table3 --run x", "--run is for figures"),
    ("reproduce table3 --workdir gs://bucket/x", "use a local folder"),
    ("reproduce report --config.model.d_ff=3", "--config.model.d_ff is for a table's rows"),
    # A server.
    ("serve --port 65536", "'65536' must be an integer from 0 to 65,535"),
    ("serve --timeout inf", "'inf' must be a finite number"),
    ("serve --queue 10 --max-sentences 11", "but only 10 can wait"),
]


# Every command with each of its arguments that names something, which may not be empty.
EMPTY = {
    "demo": "--workdir",
    "quickstart": "--workdir --write-text",
    "prepare": "--workdir --config --ray-address",
    "train": "--workdir --config --init-from --coordinator",
    "average": "--workdir",
    "translate": "--workdir --input --output --shard --key --translation-key --prefix-key "
    "--forbid-key --constraints-key --terminology --ensemble --suppress --forbid --ray-address",
    "score": "--workdir --src --tgt --input --output --shard --key --translation-key --scored-key "
    "--ray-address",
    "evaluate": "--workdir --set --src --ref --hypotheses --output --name --folder --testset "
    "--langpair --tgt-lang",
    "compare a b": "--ref --src --set --testset --langpair --output",
    "attention": "--workdir --output --query --input --target --draw --pronouns",
    "figures curves": "--output --values",
    "serve": "--workdir --host --api-keys --examples --cors --allowed-host",
    "reproduce table3": "--workdir --only --folder --corpus --train --results --report --run",
    "doctor": "--workdir",
    "plan": "--config --topology --workdir --save-hlo",
    "export": "--workdir --output --sample --push --license",
    "import": "--from --workdir --sample",
    "config": "--config",
    "trees linearize x": "--output-src --output-tgt",
}


@pytest.mark.parametrize("command", EMPTY)
def test_what_is_named_may_not_be_empty(run, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for name in SETTINGS:
        monkeypatch.setenv(name, "unset")
    needed = {"--workdir": ".", "--output": "o", "--from": "x", "--format": "huggingface"}
    needed |= {"--topology": "v5e:2x4", "--config": "quickstart", "--output-src": "o"}
    needed |= {"--output-tgt": "p"}
    required = {
        "export": ("--workdir", "--output", "--format"),
        "import": ("--from", "--workdir"),
        "plan": ("--config", "--topology"),
        "figures curves": ("--output",),
        "trees linearize x": ("--output-src", "--output-tgt"),
    }
    usual = ("--workdir",) if command in OF_A_RUN or command == "prepare" else ()
    for flag in EMPTY[command].split():
        other_flags = [word for word in required.get(command, usual) if word != flag]
        words = [
            word for required_flag in other_flags for word in (required_flag, needed[required_flag])
        ]
        values = ["", "x"] if flag in ("--train",) else [""]
        done = run(*command.split(), *words, flag, *values)
        assert done.status == 2 and f"{flag} is empty" in done.last, (flag, done.errors)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "call", ["compare '' b", "trees score '' b", "figures curves '' --output a"]
)
def test_a_file_that_is_named_by_its_place_may_not_be_empty(run, call):
    done = run(*(word.strip("'") for word in call.split()))
    assert done.status == 2 and "is empty" in done.last, done.errors


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_a_wrong_call_is_explained_in_a_line(run, tmp_path, monkeypatch, call, message):
    monkeypatch.chdir(tmp_path)
    for name in SETTINGS:  # as it was, afterwards
        monkeypatch.setenv(name, "unset")
    if call.split()[0] in OF_A_RUN and "dir" not in call:
        call += " --workdir ."
    done = run(*(word.strip("'") for word in call.split()))
    assert done.status == 2 and message in done.last, done.errors
    assert list(tmp_path.iterdir()) == []


def test_one_group_of_settings_is_explained_by_itself(run):
    explained = run("config", "--explain", "training.schedule").output.splitlines()
    assert [line.partition(" ")[0].rpartition(".")[2] for line in explained] == [
        *("kind", "factor", "peak", "warmup_steps", "final", "total_steps", "decay_steps")
    ]
    assert run("config", "--explain", "model.dropout").output.count("\n") == 1
    assert {*explained} < {*run("config", "--explain").output.splitlines()}
    assert "set them too" in run("config", "--explain", "model.num_heads").output
    done = run("config", "--config", "wmt14_en_de:base", "--config.model.num_heads=1")
    assert "note: 1 head of d_k = 64: width 64" in done.last
    big = run("config", "--config", "wmt14_en_de:big", "--json").output
    assert json.loads(big)["model"]["d_model"] == 1024


def test_only_settings_that_name_text_are_refused_twice(capsys):
    parser = make_parser("train", "", overridable=True)
    harmless = ["data.valid_fraction=0.1", "data.train.a.weight=1", "training.steps=9"]
    for setting in harmless:
        key = setting.partition("=")[0]
        again = f"{key}=0.5"
        assert parser.parse_args([f"--config.{setting}", f"--config.{again}"]).overrides == [
            setting,
            again,
        ]
    for key in ("data.train.a", "data.train.a.src", "data.valid.tgt", "data.test.b.path"):
        with pytest.raises(SystemExit):
            parser.parse_args([f"--config.{key}=x", f"--config.{key}=y"])
        assert f"--config.{key} is given twice" in capsys.readouterr().err
