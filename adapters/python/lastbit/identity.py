"""Who a kernel is: a digest of everything its bits come from, and what else they may depend on."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

_FLAGS = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "PYTHONHASHSEED",
    "XLA_FLAGS",
    "NPY_DISABLE_CPU_FEATURES",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_BATCH_INVARIANT",
    "VLLM_FLASH_ATTN_VERSION",
)
_FLAG_GROUPS = (
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "TORCH_",
    "PYTORCH_",
    "JAX_",
    "TRITON_",
    "FLASHINFER_",
    "FLASH_ATTENTION_",
    "ASCEND_",
)
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


def flags() -> dict[str, str]:
    """Environment variables that matter, and are set."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if (name in _FLAGS or name.startswith(_FLAG_GROUPS)) and not any(word in name for word in _SECRETS)
    }


def cpu() -> str:
    """The CPU's name: BLAS libraries pick their code by it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def _distributions() -> Any:
    return metadata.packages_distributions()


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        names = _distributions().get(name)
        return metadata.distribution(names[0]) if names else None


def library(name: str) -> tuple[str, bytes]:
    """``name version`` of a library and a digest of its files.

    ``name`` is that of a distribution or of a module, or the path of a file such as a shared object. An installed distribution
    lists the digests of its files in RECORD, so that one small file stands for all of them.
    """
    path = Path(name)
    if path.is_file():
        return path.name, hashlib.sha256(path.read_bytes()).digest()
    found = _distribution(name)
    if found is None:
        module = sys.modules.get(name)
        if module is None:
            return f"{name} (not found)", b""
        version = str(getattr(module, "__version__", "of unknown version"))
        files = [Path(str(module.__file__))] if getattr(module, "__file__", None) else []
        return f"{name} {version}", b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)
    record = found.read_text("RECORD") or ""
    # Bytecode, pip's marker files, and scripts with the path of their interpreter in them differ between installations.
    lines = sorted(line for line in record.splitlines() if not any(it in line for it in (".pyc", ".dist-info/", "../")))
    return f"{name} {found.version}", hashlib.sha256("\n".join(lines).encode()).digest()


def sources() -> list[Path]:
    """The script that was started, and the modules imported so far from its folder."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is None:
        return []
    start = Path(script).resolve()
    files = {start}
    package = Path(__file__).resolve().parent
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not name:
            continue
        path = Path(name).resolve()
        inside = start.parent in path.parents and path.is_file()
        if inside and "site-packages" not in path.parts and package not in path.parents:
            files.add(path)
    return sorted(files)


def digest(files: Iterable[Path], libraries: Sequence[str]) -> tuple[str, list[str]]:
    """SHA-256 over sources and libraries, and the libraries' versions."""
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.name}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    versions = []
    for name in libraries:
        version, of_files = library(name)
        versions.append(version)
        total.update(f"{version}\0".encode())
        total.update(of_files)
    return total.hexdigest(), versions


def describe(
    name: str, version: str, device: str, libraries: Sequence[str], details: dict[str, str], of_arrays: dict[str, str]
) -> dict[str, Any]:
    """The ``identity`` of the welcome. ``details`` are the kernel's own and win over what is found here."""
    named = list(dict.fromkeys(["numpy", *libraries]))
    sha, versions = digest(sources(), named)
    found = {
        "libraries": ", ".join(versions),
        "python": platform.python_version(),
        "cpu": cpu(),
        **of_arrays,
        **flags(),
        **details,
    }
    return {"name": name, "version": version, "device": device, "digest": sha, "details": found}
