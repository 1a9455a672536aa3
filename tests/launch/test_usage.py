"""What all scripts of launch/ share: help, what they say of wrong usage, and ShellCheck."""

import os

import pytest

from tests.launch.scripts import executable, run

WRONG = {
    "retry.sh": {
        "": "missing COMMAND",
        "--wait 601 true": "--wait 601 is more than --max-wait 600",
    },
    "slurm.sbatch": {"": "missing command"},
    "tpu_vm.sh": {
        "": "missing NAME, the first argument",
        "mt -- x": "--zone is missing, and CLOUDSDK_COMPUTE_ZONE is not set",
        "mt --zone z": "missing command after --",
        "m_t --zone z -- x": "'m_t': a TPU's name may have only lower-case letters, digits and -",
        "mt --zone z --type v9-8 -- x": "--type v9-8: unknown software version; set it with "
        "--runtime",
    },
    "gke/make.sh": {
        "--image i --tpu v6e:4x4 -- x": "missing NAME, the first argument",
        "mt --image i --tpu v5p:4x4 -- x": "--tpu v5p:4x4: the topology has 3 sides",
    },
    "docker/build.sh": {"rocm --image i": "'rocm': cpu, serve, tpu, cuda or an option"},
}


@pytest.mark.parametrize("script", WRONG)
def test_wrong_usage_is_said_and_does_nothing(tmp_path, script):
    executable(tmp_path / "gcloud", f"#!/bin/sh\ntouch {tmp_path}/called\n")
    world = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    name = script.rpartition("/")[2]
    for arguments, message in WRONG[script].items():
        done = run(script, *arguments.split(), CLOUDSDK_COMPUTE_ZONE="", **world)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"{name}: {message}\n{name}: see {name} --help\n"
    assert [path.name for path in tmp_path.iterdir()] == ["gcloud"]
