"""`launch/tpu_vm.sh`: the exact gcloud lines, and what it does when the TPU is taken away."""

import shlex

import pytest

from tests.conftest import eventually
from tests.launch.scripts import LAUNCH, ROOT, Cloud, run, start

LIST = f"git -C {ROOT} ls-files -z --cached --others --exclude-standard"
PACK = f"{LIST} | tar -C {ROOT} -czf flaxformer_mt.tar.gz --null --files-from=-"
WORKER = LAUNCH / "tpu_worker.sh"
TPU = ("mt", "--zone", "z", "--wait", "0", "--package", "p")


@pytest.fixture
def cloud(tmp_path) -> Cloud:
    return Cloud.make(tmp_path / "cloud")


def test_dry_run_spot_slices_from_the_queue():
    arguments = (
        "mt --zone z --type v6e-16 --spot --queued --valid-until 6h --slices 2 --delete-on-exit "
        "--create-flag=--internal-ips --connect-flag=--internal-ip --dry-run"
    )
    command = ("--env", "LIBTPU_INIT_ARGS=--a --b", "--", "train", "--workdir", "gs://b/a b")
    done = run("tpu_vm.sh", *arguments.split(), *command, CLOUDSDK_COMPUTE_ZONE="")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if not line.startswith("#")] == [
        "gcloud compute tpus queued-resources describe mt --zone=z "
        "'--format=value[separator=,](state.state,tpu.nodeSpec[0].node.acceleratorType,"
        "tpu.nodeSpec[0].node.runtimeVersion,tpu.nodeSpec[0].multisliceParams.nodeCount)'",
        "gcloud compute tpus queued-resources create mt --zone=z --accelerator-type=v6e-16 "
        "--runtime-version=v2-alpha-tpuv6e --node-count=2 --valid-until-duration=6h --spot "
        "--internal-ips",
        PACK,
        f"gcloud compute tpus queued-resources scp {WORKER} flaxformer_mt.tar.gz mt: --worker=all "
        "--node=all --zone=z --internal-ip",
        "gcloud compute tpus queued-resources ssh mt --worker=all --node=all --zone=z "
        r"--internal-ip '--command=env '\''LIBTPU_INIT_ARGS=--a --b'\'' bash tpu_worker.sh "
        "run --extras tpu,gcs -- train --workdir "
        r"'\''gs://b/a b'\'''",
        "gcloud compute tpus queued-resources delete mt --zone=z --quiet --force",
    ]


def test_a_tpu_is_deleted_although_nobody_reads_what_is_said(cloud):
    arguments = [*TPU, "--type", "v4-8", "--retries", "0", "--delete-on-exit", "--", "doctor"]
    cloud.write("ends", "1")
    process = start("tpu_vm.sh", *arguments, **cloud.environment)
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    process.wait(60)
    assert cloud.calls()[-1] == "delete tpu-vm"


@pytest.mark.extended
@pytest.mark.parametrize("queued", [True, False])
def test_stop_finds_several_slices_by_their_queued_resource(cloud, queued):
    if queued:
        cloud.write("states", "ACTIVE")
    done = cloud.run("mt", "--zone", "z", "--stop")
    assert done.returncode == 0, done.stderr
    kind = "queued-resources" if queued else "tpu-vm"
    assert cloud.calls() == ["describe queued-resources", f"ssh {kind}"]
    assert cloud.lines()[-1].endswith("--zone=z --command=bash tpu_worker.sh stop")


def test_what_runs_is_what_the_dry_run_printed(cloud):
    arguments = (*TPU, "--type", "v4-8", "--delete-on-exit")
    done = cloud.run(*arguments, "--dry-run", "--", "doctor")
    create = "create mt --zone=z --accelerator-type=v4-8 --version=tpu-ubuntu2204-base"
    assert cloud.calls() == [] and f"tpu-vm {create}\n" in done.stdout
    assert cloud.run(*arguments, "--", "doctor").returncode == 0
    planned = [shlex.split(line) for line in done.stdout.splitlines() if line[0] != "#"]
    planned = [" ".join(words) for words in planned]
    commands = [f"gcloud {line}" for line in cloud.lines()]
    # Before it deletes, it looks whether there is something to delete.
    assert commands == [*planned[:-1], planned[0], planned[-1]]


def test_a_tpu_that_is_there_is_used_and_kept_and_none_is_made_without_a_type(cloud):
    done = cloud.run(*TPU, "--", "doctor")
    assert done.returncode == 2 and cloud.calls() == ["describe tpu-vm"]
    assert "there is no mt in z; give --type to create it" in done.stderr
    assert "still exists" not in done.stderr
    cloud.write("states", "READY")
    done = cloud.run(*TPU, "--", "doctor")
    assert done.returncode == 0, done.stderr
    assert cloud.calls()[1:] == ["describe tpu-vm", "scp tpu-vm", "ssh tpu-vm"]
    assert "mt still exists; to delete it: gcloud compute tpus tpu-vm delete mt" in done.stderr


@pytest.mark.parametrize(
    ("there", "asked", "differences"),
    [
        ("READY,v4-8,tpu-ubuntu2204-base,True", "--type v4-8 --spot", []),
        (
            "READY,v4-8,tpu-ubuntu2204-base,",
            "--type v5litepod-8 --spot",
            ["--type v4-8, and you ask for v5litepod-8", "no --spot, and you ask for it"],
        ),
        (
            "READY,v4-8,old,True",
            "--runtime new",
            ["--runtime old, and you ask for new", "--spot, and you don't ask for it"],
        ),
        (
            "ACTIVE,projects/p/acceleratorTypes/v6e-16,v2-alpha-tpuv6e,",
            "--queued --type v6e-16 --slices 2",
            ["--slices 1, and you ask for 2"],
        ),
        ("ACTIVE,v6e-16,v2-alpha-tpuv6e,2", "--queued --type v6e-16 --slices 2", []),
    ],
)
def test_what_an_existing_tpu_has_otherwise_is_said(cloud, there, asked, differences):
    cloud.write("states", there)
    done = cloud.run(*TPU, *asked.split(), "--", "doctor")
    assert done.returncode == 0, done.stderr
    said = [line.partition("the existing mt has ")[2] for line in done.stderr.splitlines()]
    assert [line for line in said if line] == differences
    assert ("delete mt, then repeat the call" in done.stderr) == bool(differences)


def test_preempted_tpu_is_made_again_and_the_command_run_again(cloud):
    cloud.write("ends", "PREEMPTED", "PREEMPTED", "0")
    done = cloud.run(*TPU, "--type", "v4-8", "--spot", "--", "train", "--workdir", "gs://b/r")
    assert done.returncode == 0, done.stderr
    one_life = ["create tpu-vm", "scp tpu-vm", "ssh tpu-vm", "describe tpu-vm"]
    made_again = ["describe tpu-vm", "delete tpu-vm", "describe tpu-vm"]
    assert cloud.calls() == (
        ["describe tpu-vm", *one_life, *made_again, *one_life, *made_again, *one_life[:3]]
    )
    remote = [line for line in cloud.lines() if "--comm" in line]
    assert len(remote) == 3 and len(set(remote)) == 1
    assert "mt is PREEMPTED after exit status 255: preempted; creating it again" in done.stderr


@pytest.mark.extended
def test_suspended_queued_resource_is_asked_for_again(tmp_path):
    """Of one slice, which is a node of its name, in the zone of the environment."""
    created = "WAITING_FOR_RESOURCES\nPROVISIONING\nACTIVE\n"
    queue = Cloud.make(tmp_path / "cloud", created=created)
    queue.write("ends", "SUSPENDED", "0")
    arguments = "mt --wait 0 --package p --type v4-8 --spot --queued -- train".split()
    done = run("tpu_vm.sh", *arguments, **queue.environment | {"CLOUDSDK_COMPUTE_ZONE": "zz"})
    assert done.returncode == 0, done.stderr
    calls = queue.calls()
    assert calls.count("create queued-resources") == 2
    assert calls.count("delete queued-resources") == 1
    assert "mt is WAITING_FOR_RESOURCES: waiting" in done.stderr
    assert "mt is PROVISIONING: waiting" in done.stderr
    created = [line for line in queue.lines() if " create " in line]
    assert created[0] == (
        "compute tpus queued-resources create mt --zone=zz --accelerator-type=v4-8 "
        "--runtime-version=tpu-ubuntu2204-base --node-id=mt --spot"
    )
    assert "scp tpu-vm" in queue.calls()


@pytest.mark.extended
@pytest.mark.parametrize(
    ("ends", "options", "status", "runs", "said"),
    [
        ("75 0", "--retries 2", 0, 2, "still exists; to delete it:"),
        ("2 0", "--retries 2", 2, 1, ""),
        ("1 1 1", "--retries 2", 1, 3, ""),
        ("76 0", "--retries 2", 75, 1, "asked to stop (--stop)"),  # by another call
        ("2", "--retries 0 --delete-on-exit", 2, 1, ""),
        ("PREEMPTED", "--retries 0 --delete-on-exit", 75, 1, ""),
        ("77", "--retries 2 --delete-on-exit", 2, 1, "still exists; to delete it:"),  # not ours
        # A command whose stream was lost may be running.
        ("255 255", "--retries 1 --delete-on-exit", 255, 2, "letting the command save"),
    ],
)
def test_the_end_of_the_command_decides(cloud, ends, options, status, runs, said):
    cloud.write("states", "READY")
    cloud.write("ends", *ends.split())
    done = cloud.run(*TPU, *options.split(), "--", "train")
    assert done.returncode == status and said in done.stderr, done.stderr
    assert sum("tpu_worker.sh run" in line for line in cloud.lines()) == runs
    stops = sum(line.endswith("tpu_worker.sh stop") for line in cloud.lines())
    assert stops == 1 or "letting" not in said
    deleted = "--delete-on-exit" in options and ends != "77"
    assert (cloud.calls()[-1] == "delete tpu-vm") == deleted


def test_gclouds_own_trouble_is_shown_and_creates_nothing(cloud):
    cloud.write("broken", "ERROR: you are not logged in")
    done = cloud.run(*TPU, "--retries", "0", "--type", "v4-8", "--", "train")
    assert done.returncode == 1 and "you are not logged in" in done.stderr
    assert "create tpu-vm" not in cloud.calls()


@pytest.mark.extended
@pytest.mark.parametrize("delete", [True, False])
def test_ctrl_c_ends_the_stream_and_lets_the_command_save_before_a_deletion(cloud, delete):
    cloud.write("states", "READY")
    cloud.write("hang")
    options = [*TPU, *(["--delete-on-exit"] if delete else [])]
    process = start("tpu_vm.sh", *options, "--", "train", **cloud.environment)
    eventually((cloud.folder / "hanging").exists)
    (cloud.folder / "hang").unlink()
    process.send_signal(2)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    if delete:
        assert cloud.calls()[-1] == "delete tpu-vm"
        assert any(line.endswith("tpu_worker.sh stop") for line in cloud.lines())
    else:
        assert cloud.calls()[-1] == "ssh tpu-vm"
        assert "the command is still running on mt" in stderr
