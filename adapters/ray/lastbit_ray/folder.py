"""The driver's folder: what was asked for, the folders of finished shards, the result."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from .job import Job, UsageError
from .task import pack, unpack

_JOB = "job.json"
_SHARDS = "shards"

# The folder of a shard, where it runs.
SHARD = "lastbit.shard"


class Folder:
    """DIR. Files in it appear whole or not at all, so that a driver that was stopped goes on where it was."""

    def __init__(self, path: Path, job: Job, shards: int, sha256: str) -> None:
        """Makes the folder, or opens that of the same job.

        Raises UsageError where it holds another job, or something else.
        """
        self.path = path
        self.shards = shards
        asked = {
            "lastbit_sha256": sha256,
            "shards": shards,
            "command": job.command,
            "arguments": list(job.shard_arguments),
        }
        file = path / _JOB
        if file.exists():
            try:
                found = json.loads(file.read_text())
                differing = next((name for name in asked if found.get(name) != asked[name]), None)
            except (ValueError, AttributeError) as error:
                raise UsageError(f"{file}: is no JSON object: {error}; name another folder with --out") from error
            if differing is not None:
                raise UsageError(
                    f"{file}: {differing}: the folder has {found.get(differing)!r}, asked for is {asked[differing]!r}; "
                    "give what it has, or name another folder with --out"
                )
        elif path.exists() and any(path.iterdir()):
            raise UsageError(f"--out {path}: exists and is no folder of this driver; name another")
        path.joinpath(_SHARDS).mkdir(parents=True, exist_ok=True)
        unfinished = path / f".{_JOB}.tmp"
        unfinished.write_text(json.dumps(asked, indent=2) + "\n")
        unfinished.replace(file)

    def name(self, number: int) -> str:
        """What a shard is called here and where shards are joined."""
        return f"{_SHARDS}/{number}-of-{self.shards}"

    def missing(self) -> list[int]:
        """Shards that are not here yet."""
        return [number for number in range(1, self.shards + 1) if not (self.path / self.name(number)).is_dir()]

    def add(self, number: int, files: bytes) -> None:
        """Takes a finished shard in."""
        unfinished = self._unpacked(files)
        (unfinished / SHARD).rename(self.path / self.name(number))
        unfinished.rmdir()

    def packed(self, number: int) -> bytes:
        """A shard, to be sent to where they are joined."""
        shard = self.path / self.name(number)
        return pack(shard, sorted(os.listdir(shard)))

    def result(self, files: bytes) -> None:
        """Takes the result in, in place of an earlier one."""
        unfinished = self._unpacked(files)
        for entry in list(unfinished.iterdir()):
            target = self.path / entry.name
            if target.is_dir():
                shutil.rmtree(target)
            entry.replace(target)
        unfinished.rmdir()

    def _unpacked(self, files: bytes) -> Path:
        unfinished = self.path / ".unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        unpack(files, unfinished)
        return unfinished
