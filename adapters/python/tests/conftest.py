"""Kernels as scripts in a folder of their own, started as the harness starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lastbit import frame  # noqa: E402
from lastbit.check.child import Child  # noqa: E402
from lastbit.frame import Body  # noqa: E402


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find the package, installed or not."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a kernel; its text is indented as in the test."""

    def write(text: str, name: str = "my_kernel.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def start(script: Callable[[str], Path]) -> Iterator[Callable[..., Child]]:
    """Starts a kernel given as text or path, and ends it with the test."""
    children = []

    def go(kernel: str | Path) -> Child:
        path = kernel if isinstance(kernel, Path) else script(kernel)
        child = Child([sys.executable, str(path)], 300)
        children.append(child)
        return child

    yield go
    for child in children:
        child.kill()


@pytest.fixture
def raw(script: Callable[[str], Path]) -> Iterator[Callable[[str, bytes], tuple[int, list[tuple[int, int, Body]], str]]]:
    """Sends bytes to a kernel and closes its stdin: exit code, answers (kind, id, body), stderr."""

    def go(text: str, sent: bytes, **environment: str) -> tuple[int, list[tuple[int, int, Body]], str]:
        # Unbuffered, a print before `import lastbit` reaches the pipe: nothing of the package runs before it.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        variables = {**kept, "LASTBIT_KERNEL": "1", **environment}
        done = subprocess.run([sys.executable, str(script(text))], input=sent, capture_output=True, env=variables, timeout=300)
        return done.returncode, frames(done.stdout), done.stderr.decode()

    yield go


def frames(stream: bytes) -> list[tuple[int, int, Body]]:
    """All frames of a stream, which must hold nothing else. One whose body is in shared memory has none here."""
    found = []
    while stream:
        magic, version, kind, number, length = frame.HEADER.unpack(stream[: frame.HEADER.size])
        assert magic == frame.MAGIC and version == 1
        if kind & frame.SHARED:
            found.append((kind, number, Body({"length": str(length)}, {})))
            stream = stream[frame.HEADER.size :]
            continue
        body = stream[frame.HEADER.size : frame.HEADER.size + length]
        assert len(body) == length
        found.append((kind, number, frame.decode(memoryview(body))))
        stream = stream[frame.HEADER.size + length :]
    return found


def packed(
    kind: int, number: int, body: bytes = b"", *, magic: bytes = b"LBT1", version: int = 1, length: int | None = None
) -> bytes:
    """One frame."""
    return frame.HEADER.pack(magic, version, kind, number, len(body) if length is None else length) + body


def blob(metadata: dict[str, str], tensors: dict[str, Any] | None = None) -> bytes:
    """A body."""
    return b"".join(frame.encode(metadata, tensors))


HELLO = packed(1, 0, blob({"versions": "1"}))
