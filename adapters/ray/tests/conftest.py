"""A real lastbit, and a real cluster of two nodes on this machine."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def lastbit() -> str:
    path = Path(os.environ.get("LASTBIT_BIN", ROOT / "target" / "debug" / "lastbit"))
    if not path.exists():
        pytest.fail(f"{path}: build it first (cargo build), or set LASTBIT_BIN")
    return str(path)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    memory = {"object_store_memory": 256 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False, **memory})
    cluster.add_node(num_cpus=2, **memory)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


@pytest.fixture
def drive(cluster: Any, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the driver, as a user does."""

    def drive(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lastbit_ray", "--address", cluster.address, *words]
        path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300
        )

    return drive


@pytest.fixture
def script(tmp_path: Path, lastbit: str) -> Callable[[str], str]:
    """A lastbit that does something first: lines of shell."""

    def script(lines: str) -> str:
        path = tmp_path / "lastbit.sh"
        path.write_text(f'#!/bin/sh\n{lines}\nexec {lastbit} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return script
