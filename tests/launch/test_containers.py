"""`launch/gke/make.sh`, `launch/docker/`: manifests and build lines, word by word."""

import json
import os
import re

import pytest

from flaxformer_mt.cli import serve
from tests.launch.scripts import LAUNCH, ROOT, executable, run


def manifest(*arguments: str) -> str:
    done = run("gke/make.sh", "mt", "--image", "img:1", *arguments)
    assert done.returncode == 0, done.stderr
    assert "@" not in done.stdout
    return done.stdout


def field(text: str, name: str) -> str:
    (value,) = re.findall(rf"^ *{re.escape(name)}: (.*)$", text, re.MULTILINE)
    return value


def test_a_tpu_job_restarts_unless_it_is_hopeless():
    text = manifest("--tpu", "v6e:4x4", "--slices", "2", "--spot", "--retries", "7", "--", "train")
    expected = {
        "maxRestarts": "7",
        "onJobFailureReasons": "[PodFailurePolicy]",
        "backoffLimit": "0",
        "values": "[2]",  # exit statuses of wrong usage, settings or input
        "terminationGracePeriodSeconds": "120",
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool",
        "replicas": "2",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-spot": '"true"',
        "image": "img:1",
        "command": "[prlimit, --memlock=unlimited, flaxformer-mt]",
        "args": '["train"]',
    }
    assert {name: field(text, name) for name in expected} == expected
    assert "hostNetwork" not in text  # with which GKE ignores Workload Identity
    assert field(manifest("--tpu", "v6e:4x4", "--host-network", "--", "x"), "hostNetwork") == "true"


@pytest.mark.parametrize(
    ("tpu", "accelerator", "hosts", "chips"),
    [
        ("v5e:1x1", "tpu-v5-lite-podslice", "1", "1"),
        ("v5e:16x16", "tpu-v5-lite-podslice", "64", "4"),
        ("tpu7x:2x2x2", "tpu7x", "2", "4"),
    ],
)
def test_hosts_and_chips_of_a_topology(tpu, accelerator, hosts, chips):
    text = manifest("--tpu", tpu, "--", "doctor")
    assert field(text, "cloud.google.com/gke-tpu-accelerator") == accelerator
    assert field(text, "parallelism") == field(text, "completions") == hosts
    assert field(text, "google.com/tpu") == chips


@pytest.mark.parametrize("accelerator", [("--tpu", "v5e:4x4"), ("--gpu", "nvidia-l4")])
def test_manifests_are_yaml_and_keep_every_word_of_the_command(accelerator):
    yaml = pytest.importorskip("yaml")
    words = ["train", "--workdir", 'gs://b/a "b" & \\c', "--config.x=$HOME", "@NAME@", "ü\tz"]
    variables = ["--env", "LIBTPU_INIT_ARGS=--a=1 --b", "--env", 'X="@NAME@"=']
    done = run("gke/make.sh", "mt", "--image", "img:1", *accelerator, *variables, "--", *words)
    job = next(iter(yaml.safe_load_all(done.stdout)))
    pod = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == words
    assert json.loads(field(done.stdout, "args")) == words
    assert pod["containers"][0]["env"] == [
        {"name": "LIBTPU_INIT_ARGS", "value": "--a=1 --b"},
        {"name": "X", "value": '"@NAME@"='},
    ]


def test_apply_hands_the_manifest_to_kubectl(tmp_path):
    kubectl = f'#!/bin/bash\necho "$*" >{tmp_path}/call; cat >{tmp_path}/in\n'
    executable(tmp_path / "kubectl", kubectl)
    arguments = ("mt", "--image", "img:1", "--tpu", "v5e:2x4", "--apply")
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    dry = run("gke/make.sh", *arguments, "--dry-run", "--", "doctor", **variables)
    assert not (tmp_path / "call").exists()
    first, _, manifest = dry.stdout.partition("\n")
    assert first == "# kubectl apply -f - < the following"
    assert run("gke/make.sh", *arguments, "--", "doctor", **variables).returncode == 0
    assert (tmp_path / "call").read_text() == "apply -f -\n"
    assert (tmp_path / "in").read_text() == manifest


def test_the_dockerfile_has_every_target_and_copies_what_the_package_is_built_from():
    text = (LAUNCH / "docker" / "Dockerfile").read_text()
    assert re.findall("^FROM .* AS (.*)$", text, re.M) == ["cpu", "serve", "tpu", "cuda"]
    copied = [word for line in re.findall("^COPY (.*)$", text, re.M) for word in line.split()[:-1]]
    assert all((ROOT / word).exists() for word in copied)
    files = {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"}
    assert files | {"flaxformer_mt", "configs", "docs"} <= set(copied)
    extras = re.findall(r"(?:\.|flaxformer-mt)\[([a-z]+)\]", text)
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert extras == ["gcs", "serve", "tpu", "cuda"]
    assert all(f"\n{extra} = [" in pyproject for extra in extras)
    (command,) = re.findall(r"^CMD (\[\"serve.*)$", text, re.M)
    assert serve._parser("", "").parse_args(json.loads(command)[1:]).workdir == "/run"
