"""Kernels as scripts in a folder of their own, started as the harness starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from wire import frames  # noqa: E402

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
