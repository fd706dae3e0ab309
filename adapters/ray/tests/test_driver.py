"""Shards on a cluster, some of whose workers are killed: the result is that of one run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from files import files

FUZZ = ["fuzz", "--profile", "quick", "--cases", "120", "--keep-going", "--infer", "ref:p-bf16"]


def wait(until, seconds: float = 120):
    end = time.monotonic() + seconds
    while not (found := until()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return found


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[1])
    except OSError:
        return None


def alone(lastbit: str, folder: Path, *words: str) -> subprocess.CompletedProcess:
    folder.mkdir()
    return subprocess.run([lastbit, *words], cwd=folder, capture_output=True, text=True)


def test_a_killed_worker_changes_nothing(drive, script, lastbit, tmp_path):
    """The worker that runs shard 2 is killed with `kill -9`: its lastbit goes with it, the shard is run again."""
    mark = tmp_path / "mark"
    first = f"""case "$*" in *"--shard 2/5"*)
  if mkdir {mark}; then echo $PPID $$ >{mark}/new; mv {mark}/new {mark}/pids; exec sleep 600; fi;;
esac"""
    binary = script(first)
    pids = []

    def kill() -> None:
        pids.extend(map(int, wait(lambda: (mark / "pids").exists() and (mark / "pids").read_text()).split()))
        command = Path(f"/proc/{pids[0]}/cmdline").read_text()
        assert command.startswith("ray::"), command
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    done = drive("--shards", "5", "--lastbit", binary, "--out", "all", "--", *FUZZ)
    killer.join()
    one = alone(lastbit, tmp_path / "one", *FUZZ, "--out", "run")
    assert (done.returncode, one.returncode) == (1, 1), done.stderr
    assert len(pids) == 2
    wait(lambda: not any(map(is_running, pids)))
    assert files(tmp_path / "one" / "run") == files(tmp_path / "all" / "run")
    times = (" cases in ",)
    lines = [[line for line in it.stdout.splitlines() if not any(word in line for word in times)] for it in (done, one)]
    assert lines[0] == lines[1]


def test_a_lost_node_changes_nothing(cluster, drive, script, lastbit, tmp_path):
    """A node dies while it runs a shard: the shard is run on another."""
    mark = tmp_path / "mark"
    first = f"""case "$*" in *"--shard 1/3"*)
  if mkdir {mark}; then echo $PPID $$ >{mark}/new; mv {mark}/new {mark}/pids; exec sleep 600; fi;;
esac"""
    binary = script(first)
    # Only these have what a shard asks for: the driver's own node must live on.
    nodes = [cluster.add_node(num_cpus=3, object_store_memory=128 << 20) for _ in range(2)]
    cluster.wait_for_nodes()
    pids = []

    def lose() -> None:
        pids.extend(map(int, wait(lambda: (mark / "pids").exists() and (mark / "pids").read_text()).split()))
        raylet = parent(pids[0])
        assert "raylet" in Path(f"/proc/{raylet}/cmdline").read_text()
        # As where the power goes: all of the node at once, its other workers too.
        others = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        for pid in (raylet, *[pid for pid in others if parent(pid) == raylet]):
            os.kill(pid, signal.SIGKILL)

    loser = threading.Thread(target=lose)
    loser.start()
    done = drive("--shards", "3", "--cpus", "3", "--lastbit", binary, "--out", "all", "--", *FUZZ)
    loser.join()
    one = alone(lastbit, tmp_path / "one", *FUZZ, "--out", "run")
    assert (done.returncode, one.returncode) == (1, 1), done.stderr
    wait(lambda: not any(map(is_running, pids)))
    assert files(tmp_path / "one" / "run") == files(tmp_path / "all" / "run")
    for node in nodes:
        cluster.remove_node(node)


def test_shards_of_power_are_one_table(drive, lastbit, tmp_path):
    power = ["power", "--only", "A-M1,B-M1,D-M1", "--cases", "60", "--clean-cases", "60", "--rival-cases", "20"]
    done = drive("--shards", "4", "--lastbit", lastbit, "--out", "all", "--", *power, "--floor", "1.0")
    one = alone(lastbit, tmp_path / "one", *power, "--json", "power.json", "--floor", "1.0")
    assert done.returncode == one.returncode, done.stderr
    assert files(tmp_path / "one" / "power.json") == files(tmp_path / "all" / "power.json")
    assert done.stdout.startswith("Planted faults in ref:aligned")


def test_shards_of_a_certification_are_one_certificate(drive, script, lastbit, tmp_path):
    """With a worker killed, too."""
    mark = tmp_path / "mark"
    first = f"""case "$*" in *"--shard 2/3"*) if mkdir {mark}; then kill -9 $PPID; sleep 600; fi;; esac"""
    certify = ["certify", "--battery", "quick", "--infer", "ref:aligned,softmax.block=16"]
    done = drive("--shards", "3", "--lastbit", script(first), "--out", "all", "--", *certify)
    one = alone(lastbit, tmp_path / "one", *certify, "-o", "cert.json")
    assert done.returncode == one.returncode == 1, done.stderr
    assert mark.exists() and done.stdout == one.stdout
    names = ["cert.json", "cert.cases.jsonl", "counterexamples"]
    found = [{name: files(folder / name) for name in names} for folder in (tmp_path / "one", tmp_path / "all")]
    for it in found:
        certificate = json.loads(it["cert.json"]["."])
        # Where and when, and the seal over that.
        for field in ("environment", "seal"):
            del certificate["predicate"]["lastbit"][field]
        it["cert.json"] = certificate
    assert found[0] == found[1]


def test_finished_shards_are_kept_and_not_run_again(drive, script, lastbit, tmp_path):
    """One shard fails, which ends the driver with the code of lastbit; the next try runs what is missing."""
    count = tmp_path / "count"
    count.mkdir()
    bad = tmp_path / "bad"
    bad.touch()
    lines = f"""case "$*" in *--shard*) touch "{count}/$$";; esac
case "$*" in *"--shard 3/3"*) if test -e {bad}; then echo "disk is full" >&2; exit 74; fi;; esac"""
    command = ["--shards", "3", "--lastbit", script(lines), "--out", "all", "--", *FUZZ]
    failed = drive(*command)
    assert failed.returncode == 74, failed.stderr
    assert "shard 3/3, on node " in failed.stderr
    assert "lastbit ended with 74; the last it said:\n  disk is full" in failed.stderr
    kept = [entry.name for entry in (tmp_path / "all" / "shards").iterdir()]
    assert "3-of-3" not in kept
    ran = len(list(count.iterdir()))
    bad.unlink()
    done = drive(*command)
    assert done.returncode == 1, done.stderr
    assert len(list(count.iterdir())) == ran + 3 - len(kept)
    again = drive(*command)
    assert again.returncode == 1 and "3 of 3 shards are there" in again.stderr
    assert len(list(count.iterdir())) == ran + 3 - len(kept)
    other = drive(*command, "--seed", "2")
    assert other.returncode == 2
    assert "job.json: arguments: the folder has " in other.stderr


@pytest.mark.parametrize("installed", [False, True])
def test_the_binary_is_checked(drive, lastbit, tmp_path, installed):
    where = "--installed" if installed else "--lastbit"
    done = drive("--shards", "1", where, lastbit, "--sha256", "0" * 64, "--out", "all", "--", "fuzz", "--cases", "1")
    assert done.returncode == (75 if installed else 2)
    assert "SHA-256 is" in done.stderr


def test_files_of_kernels_are_shipped(drive, lastbit, tmp_path):
    """A relative path on the command line is one of the working directory."""
    capture = Path(__file__).resolve().parents[3] / "tests" / "captures" / "minilm-slice.safetensors"
    ship = tmp_path / "ship"
    ship.mkdir()
    (ship / "slice.safetensors").write_bytes(capture.read_bytes())
    words = ["fuzz", "--profile", "quick", "--cases", "8", "--data", "slice.safetensors"]
    done = drive("--shards", "2", "--working-dir", str(ship), "--lastbit", lastbit, "--out", "all", "--", *words)
    one = subprocess.run([lastbit, *words, "--out", "run"], cwd=ship, capture_output=True, text=True)
    assert done.returncode == one.returncode, done.stderr
    assert files(ship / "run") == files(tmp_path / "all" / "run")
