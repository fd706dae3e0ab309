"""What runs on a node: lastbit, in a folder that is gone afterwards. Nodes need this package no more than they need lastbit: the
module goes to them by value, so it imports nothing but the standard library."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Characters of what lastbit complained of that are sent back.
TAIL = 4000


@dataclass(frozen=True)
class Binary:
    """lastbit: its bytes, or where it stands on every node."""

    sha256: str
    content: bytes | None = None
    path: str | None = None

    def place(self, folder: Path) -> str:
        """Its path on this node.

        Raises RuntimeError where it is not the one that was asked for.
        """
        content = self.content if self.content is not None else Path(str(self.path)).read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise RuntimeError(f"lastbit: SHA-256 is {found}, should be {self.sha256}")
        if self.path is not None:
            return self.path
        placed = folder / "lastbit"
        placed.write_bytes(content)
        placed.chmod(0o700)
        return str(placed)


@dataclass(frozen=True)
class Answer:
    """What came of a command."""

    node: str
    # The exit code; negative: the signal that ended it.
    code: int
    stdout: str
    # Its end.
    stderr: str
    # A tar of the files that it wrote.
    files: bytes


def pack(folder: Path, names: Sequence[str]) -> bytes:
    """Files and folders of a folder, as a compressed tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in names:
            tar.add(folder / name, name)
    return buffer.getvalue()


def unpack(files: bytes, folder: Path) -> None:
    """Makes them again; nothing outside the folder is written."""
    with tarfile.open(fileobj=io.BytesIO(files)) as tar:
        tar.extractall(folder, filter="data")


def dies_with_parent() -> Callable[[], None] | None:
    """For a child: killed when this process is, so that a worker that is killed leaves no lastbit behind. Linux only."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    pdeathsig = 1
    return lambda: libc.prctl(pdeathsig, signal.SIGKILL)


@dataclass(frozen=True)
class Order:
    """One run of lastbit."""

    arguments: list[str]
    # What it writes, by name in the folder in which it runs.
    outputs: tuple[str, ...]
    # Whether it is to find the files of the task's folder, the working directory that Ray has shipped, under their names.
    shipped: bool


def run(binary: Binary, order: Order, names: Sequence[str], *inputs: bytes) -> Answer:
    """Runs lastbit once, in a folder of its own; `inputs` are unpacked beside that, as `../NAME`."""
    with tempfile.TemporaryDirectory(prefix="lastbit-ray-") as temporary:
        top = Path(temporary)
        work = top / "work"
        work.mkdir()
        if order.shipped:
            for entry in Path.cwd().iterdir():
                if entry.name not in order.outputs:
                    (work / entry.name).symlink_to(entry)
        for name, files in zip(names, inputs, strict=True):
            (top / name).mkdir(parents=True)
            unpack(files, top / name)
        program = binary.place(top)
        done = subprocess.run(
            [program, *order.arguments], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=dies_with_parent()
        )
        written = [name for name in order.outputs if os.path.lexists(work / name)]
        return Answer(
            node=socket.gethostname(),
            code=done.returncode,
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace")[-TAIL:],
            files=pack(work, written),
        )
