"""A Ray cluster of two nodes on this machine, whose workers, nodes and drivers are killed.

Needs the extra `ray`; skipped elsewhere.
"""

import contextlib
import functools
import ipaddress
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.cluster import DEATHS, ClusterError, workers
from tests.cli.conftest import settings
from tests.conftest import environment
from tests.data.prepare.corpora import contents
from tests.decoding.runs import PAIRS
from tests.system.conftest import started, wait_until
from tests.system.test_translate_stream import committed

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray", reason="needs the extra ray")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Any]:
    """A head without processors, and two nodes of one each."""
    from ray.cluster_utils import Cluster

    waits = ("agent_register_timeout_ms", "raylet_start_wait_time_s")  # on a machine that is busy
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(**{f"RAY_{name}": "300000" for name in waits}).items():
            patch.setenv(name, value)
        running = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        for _ in range(2):
            running.add_node(num_cpus=1)
        yield running
        running.shutdown()


def actors(cluster: Any) -> list[int]:
    """The processes of workers."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()}
    numbers = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in raylets and b"ray::_Worker" in (place / "cmdline").read_bytes():
                numbers.append(int(place.name))
    return numbers


def kill_worker(cluster: Any) -> None:
    wait_until(lambda: actors(cluster))
    for worker in actors(cluster)[:1]:
        os.kill(worker, signal.SIGKILL)


def descendants(process: int) -> set[int]:
    """The process and those that it has started, and they."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = (place / "stat").read_text()
            parents[int(place.name)] = int(state.rpartition(")")[2].split()[1])
    family = {process}
    while new := {child for child, parent in parents.items() if parent in family} - family:
        family |= new
    return family


def listening(processes: set[int]) -> set[str]:
    """The addresses at which these processes accept TCP connections."""
    theirs = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    theirs.add(os.readlink(file))
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in theirs:
                addresses.add(_address(local.partition(":")[0]))
    return addresses


def _address(hexadecimal: str) -> str:
    """As the kernel writes it: words of four bytes, each in this machine's order."""
    words = [bytes.fromhex(hexadecimal[n : n + 8])[::-1] for n in range(0, len(hexadecimal), 8)]
    address = ipaddress.ip_address(b"".join(words))
    return str(getattr(address, "ipv4_mapped", None) or address)


@pytest.fixture
def own_folder():
    """Ray's, in which a command finds no cluster of another test; sockets' paths must be short."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield name


def test_only_this_machine_reaches_the_cluster_that_a_command_starts(workdir, tmp_path, own_folder):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"{PAIRS[n % 4][0]}\n" for n in range(4000)))
    process = started(
        *("translate", "--workdir", workdir, "--input", source, "--output", output),
        *("--window", 4, "--engine", "ray"),
        RAY_ADDRESS="",
        RAY_TMPDIR=own_folder,
        HOME=str(tmp_path),
    )
    wait_until(lambda: committed(output) >= 8, process)
    addresses = listening(descendants(process.pid))
    process.terminate()
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 75, errors
    assert addresses == {"127.0.0.1"}


@pytest.mark.parametrize("command", ["translate", "score"])
def test_whoever_is_killed_the_output_is_one_machine_s(run, cluster, workdir, tmp_path, command):
    sources, targets = zip(*PAIRS, strict=True)
    source, output, undisturbed = (tmp_path / name for name in ("in", "out", "whole"))
    lines = [f"{sources[n % 4]} {sources[n // 4 % 4]}" for n in range(600)]
    if command == "score":
        lines = [f"{sources[n % 4]}\t{targets[n // 4 % 4]}" for n in range(600)]
    source.write_text("".join(f"{line}\n" for line in lines))
    call = (command, "--workdir", workdir, "--input", source, "--window", 4, "--output")
    if command == "translate":
        call = (*call[:-1], "--sample", "--seed", 3, "--output-format", "jsonl", "--output")
    assert run(*call, undisturbed).status == 0
    spread = (*call, output, "--engine", "ray", "--ray-address", cluster.address)

    process = started(*spread)
    wait_until(lambda: committed(output) >= 8, process)
    kill_worker(cluster)
    reached = committed(output)
    wait_until(lambda: committed(output) > reached + 40, process)
    node = next(node for node in cluster.list_all_nodes() if not node.head)
    cluster.remove_node(node, allow_graceful=False)
    reached = committed(output)
    wait_until(lambda: committed(output) > reached + 40, process)
    process.kill()
    _, errors = process.communicate(timeout=100)
    assert "; others take over its work" in errors, errors

    cluster.add_node(num_cpus=1)
    reached = committed(output)
    process = started(*spread)
    wait_until(lambda: committed(output) > reached, process)
    process.terminate()
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 75 and "SIGTERM received; the same command resumes" in errors
    assert "out.part: resuming after line " in errors and not output.exists()
    again = run(*spread, status=0)
    # A lost node counts until Ray misses it.
    assert " workers on " in again.errors and "resuming after line " in again.errors
    assert output.read_bytes() == undisturbed.read_bytes()


def test_whoever_is_killed_prepare_s_folder_is_one_machine_s(run, cluster, tmp_path):
    text, spread = tmp_path / "text", tmp_path / "spread"
    text.mkdir()
    for side, name in enumerate(("en", "de")):
        lines = [f"{PAIRS[n % 4][side]} {n % 7919} {PAIRS[n // 4 % 4][side]}\n" for n in range(400)]
        (text / f"valid.{name}").write_text("".join(lines[:20]))
        lines[77 * side] = "\n"
        (text / f"train.{name}").write_text("".join(lines) * 1000)
    call = ("prepare", *settings(text, data__vocabulary__sample=5000), "--workdir")
    assert run(*call, tmp_path / "alone").status == 0
    on_ray = (*call, spread, "--engine", "ray", "--ray-address", cluster.address)
    parts, shard = spread / "data.parts", spread / "data.partial" / "train-00000.src.tokens"

    def written(process: Any, size: int = 0) -> int:
        wait_until(lambda: shard.exists() and shard.stat().st_size > size, process)
        return shard.stat().st_size

    process = started(*on_ray)

    # A name with a dot is of a file that is being written.
    wait_until(lambda: parts.exists() and len([*parts.glob("[!.]*")]) >= 8, process)
    process.kill()
    process.communicate(timeout=100)
    finished = len([*parts.glob("[!.]*")])
    assert finished < 1 + 25 + 1  # the vocabulary, text to train on, and to validate on
    process = started(*on_ray)
    wait_until(lambda: not shard.exists(), process)
    written(process)
    kill_worker(cluster)
    written(process, shard.stat().st_size)
    node = next(node for node in cluster.list_all_nodes() if not node.head)
    cluster.remove_node(node, allow_graceful=False)
    _, errors = process.communicate(timeout=300)
    cluster.add_node(num_cpus=1)
    assert process.returncode == 0, errors
    assert "prepare: removing " in errors and "; others take over its work" in errors
    assert f"prepare: {finished} finished parts of an interrupted call were in {parts}" in errors
    assert "training the vocabulary" not in errors and not parts.exists()
    for name in ("data", "vocabulary"):
        assert contents(spread / name) == contents(tmp_path / "alone" / name)


def test_near_duplicates_are_one_machine_s(run, cluster, tmp_path):
    """Of three tasks, which two workers end in any order."""
    text = tmp_path / "text"
    text.mkdir()
    for side, name in enumerate(("en", "de")):
        lines = [
            f"{PAIRS[n % 4][side]} {n % 7919} {PAIRS[n // 4 % 4][side]}\n" for n in range(40000)
        ]
        (text / f"train.{name}").write_text("".join(lines))
        (text / f"valid.{name}").write_text("".join(lines[:20]))
    call = ("prepare", *settings(text, data__filter__near_duplicates=0.95), "--workdir")
    alone = run(*call, tmp_path / "alone")
    spread = run(*call, tmp_path / "spread", "--engine", "ray", "--ray-address", cluster.address)
    assert alone.status == spread.status == 0 and " near-duplicate" in alone.errors, spread.errors
    assert contents(tmp_path / "spread/data") == contents(tmp_path / "alone/data")


def test_a_bad_line_is_the_error_of_one_machine(run, cluster, workdir, tmp_path):
    """Also where a worker meets a later one first: what comes before the first is written."""
    lines = [PAIRS[n % 4][0].encode() for n in range(60)]
    lines[33], lines[50] = b"\xff", b"\xfe"
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    call = ("translate", "--workdir", workdir, "--input", tmp_path / "in", "--window", 2)
    alone = run(*call)
    spread = run(*call, "--engine", "ray", "--ray-address", cluster.address)
    assert spread.status == alone.status == 2 and "in:34: is not UTF-8" in alone.last
    assert spread.output == alone.output and spread.output.count("\n") == 33
    assert spread.last == alone.last
    done = run(*call, "--engine", "ray", "--ray-address", "127.0.0.1:1")
    assert done.status == 1 and "the Ray cluster cannot be reached: " in done.last


def test_what_ends_every_worker_is_told(cluster, capsys):
    """And what Ray itself says of that is no part of a command's results."""
    cluster.wait_for_nodes(timeout=100)  # one that an earlier test removed is not lost here
    said: list[str] = []
    begun = functools.partial(workers, address=cluster.address, say=said.append)

    def work(item: int) -> int:
        if item == 5:
            os._exit(1)
        if item == 9:
            raise KeyError(item)
        return item * item

    with begun(lambda: ({"who": "we"}, work)) as pool:
        assert pool.told == {"who": "we"}
        assert list(pool.map(range(5))) == [(n, n * n) for n in range(5)]
        done = pool.map(range(6, 12))
        assert [next(done) for _ in range(3)] == [(n, n * n) for n in range(6, 9)]
        with pytest.raises(KeyError):
            next(done)
        done = pool.map(range(8))
        assert [next(done) for _ in range(5)] == [(n, n * n) for n in range(5)]
        with pytest.raises(ClusterError, match="4 workers died on the same part of the work"):
            next(done)
    assert sum("ray: lost the worker" in line for line in said) == DEATHS
    with pytest.raises(ClusterError, match="died while starting"):
        with begun(lambda: os._exit(1)):
            pass
    with pytest.raises(ClusterError, match=r"differ: who is \d+ on [\d.]+ and \d+ on others"):
        with begun(lambda: ({"who": os.getpid()}, work)) as pool:
            list(pool.map(range(5000)))
    printed = capsys.readouterr()
    assert "worker died" in printed.err and not printed.out
