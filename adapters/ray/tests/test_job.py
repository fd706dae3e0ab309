"""A command line, taken apart: no cluster."""

import re
from pathlib import Path

import pytest

import lastbit_ray
from lastbit_ray.command import main
from lastbit_ray.folder import SHARD, Folder
from lastbit_ray.job import KINDS, UsageError, parse
from lastbit_ray.task import Binary, pack, run, unpack

ROOT = Path(__file__).resolve().parent.parent


def test_a_shard_and_the_joining():
    job = parse(["fuzz", "--train", "process:k a", "--infer=ref:fa2", "--cases", "9", "--format", "json", "--trust"], 3)
    assert job.shard(2, 7, "F") == [
        *("fuzz", "--train", "process:k a", "--infer=ref:fa2", "--cases", "9", "--trust"),
        *("--jobs", "3", "--shard", "2/7", "--out", "F"),
    ]
    assert job.merge(["A", "B"]) == [
        *("merge", "A", "B", "--out", "run"),
        *("--train", "process:k a", "--infer=ref:fa2", "--format", "json", "--trust"),
    ]
    job = parse(["certify", "--previous", "old.json", "--waivers", "w.toml", "--battery", "quick"], 1)
    assert job.shard(1, 2, "F") == [
        *("certify", "--previous", "old.json", "--battery", "quick"),
        *("--jobs", "1", "--shard", "1/2", "--out", "F"),
    ]
    assert job.merge(["A"]) == ["merge", "A", "--output", "cert.json", "--previous", "old.json", "--waivers", "w.toml"]
    job = parse(["power", "--floor", "1.0", "--jobs", "2"], 3)
    assert job.shard(1, 1, "F") == ["power", "--jobs", "2", "--shard", "1/1", "--out", "F"]
    assert job.merge(["A"]) == ["merge", "A", "--output", "power.json", "--floor", "1.0"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "no command"),
        (["probe"], "probe: has no shards"),
        (["fuzz", "--time", "5s"], "--time: not with the driver: shards end at a case"),
        (["fuzz", "--out=x"], "--out: not with the driver"),
        (["fuzz", "--shard", "1/2"], "--shard: not with the driver"),
        (["power", "--json", "x"], "--json: not with the driver"),
    ],
)
def test_what_cannot_be_spread_is_refused(words, part):
    with pytest.raises(UsageError, match=re.escape(part)):
        parse(words, 1)


def test_usage_is_2_and_needs_no_cluster(capsys, tmp_path):
    start = ["--shards", "2", "--out", str(tmp_path / "out")]
    assert main([*start, "--", "probe"]) == 2
    assert main([*start, "--lastbit", "/no/such/file", "--", "fuzz"]) == 2
    assert main([*start, "--installed", "/usr/bin/lastbit", "--", "fuzz"]) == 2
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    (tmp_path / "lastbit").touch()
    assert main([*start, "--lastbit", str(tmp_path / "lastbit"), "--", "fuzz"]) == 2
    errors = capsys.readouterr().err
    for part in ("probe: has no shards", "/no/such/file", "needs --sha256", "is no folder of this driver"):
        assert part in errors
    for words in (["--shards", "0"], ["--gpus", "-1"]):
        with pytest.raises(SystemExit):
            main([*words, "--out", "x", "--", "fuzz"])


def test_a_folder_takes_shards_in_whole(tmp_path):
    job = parse(["fuzz"], 1)
    folder = Folder(tmp_path / "all", job, 2, "00")
    (tmp_path / SHARD).mkdir()
    (tmp_path / SHARD / "lines").write_text("one")
    # What a driver that was killed had begun.
    (tmp_path / "all" / ".unfinished").mkdir()
    (tmp_path / "all" / ".unfinished" / "half").touch()
    folder.add(2, pack(tmp_path, [SHARD]))
    assert Folder(tmp_path / "all", job, 2, "00").missing() == [1]
    unpack(folder.packed(2), tmp_path / "again")
    assert (tmp_path / "again" / "lines").read_text() == "one"
    for shards, sha256, part in ((3, "00", "shards: the folder has 2, asked for is 3"), (2, "11", "lastbit_sha256")):
        with pytest.raises(UsageError, match=part):
            Folder(tmp_path / "all", job, shards, sha256)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "new").touch()
    (tmp_path / "all" / "run").mkdir()
    (tmp_path / "all" / "run" / "old").touch()
    folder.result(pack(tmp_path, ["run"]))
    assert [entry.name for entry in (tmp_path / "all" / "run").iterdir()] == ["new"]


def test_a_binary_that_is_another_is_not_run(tmp_path):
    with pytest.raises(RuntimeError, match="SHA-256 is"):
        Binary("00", content=b"#!/bin/sh\n").place(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert run.__module__ == "lastbit_ray.task"


def test_the_task_needs_nothing_but_python():
    """It goes to nodes that do not have this package."""
    text = (ROOT / "lastbit_ray" / "task.py").read_text()
    assert not re.search(r"^(from \.|import ray|from ray)", text, re.M)


def test_versions_and_readme_agree():
    assert f'version = "{lastbit_ray.__version__}"' in (ROOT / "pyproject.toml").read_text()
    readme = (ROOT / "README.md").read_text()
    assert all(f"`{kind}`" in readme for kind in KINDS)
