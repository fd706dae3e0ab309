"""A digest that changes when the kernel does, and only then."""

import json
import sys
from pathlib import Path

import pytest

import lastbit
from lastbit import frame, identity

KERNEL = """
import lastbit
import tiles
kernel = lastbit.Kernel("k", version="1.2", lse=False, libraries={libraries}, details={{"tile": tiles.SIZE}})
kernel.detail("found", 7)
kernel.varlen(lambda call: call.q)
if __name__ == "__main__":
    kernel.run()
"""


@pytest.fixture
def told(start, script):
    def ask(libraries=(), tile="64", environment=None):
        script(f"SIZE = {tile!r}\n", "tiles.py")
        child = start(script(KERNEL.format(libraries=list(libraries))))
        identity = json.loads(child.ask(frame.HELLO, {"versions": "1"}).body.metadata["kernel"])["identity"]
        child.end()
        return identity

    return ask


def test_the_digest_covers_the_script_and_its_modules(told):
    first = told()
    assert (first["name"], first["version"], first["device"]) == ("k", "1.2", "cpu")
    assert len(first["digest"]) == 64 and int(first["digest"], 16)
    assert told()["digest"] == first["digest"]
    changed = told(tile="128")
    assert changed["digest"] != first["digest"] and changed["details"]["tile"] == "128"


def test_the_digest_covers_a_shared_object_by_path(told, tmp_path):
    library = tmp_path / "libkernel.so"
    library.write_bytes(b"one")
    first = told([str(library)])
    library.write_bytes(b"two")
    second = told([str(library)])
    assert first["digest"] != second["digest"]
    assert first["details"]["libraries"].endswith(", libkernel.so")


def test_details(told, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("TORCH_API_TOKEN", "hidden")
    details = told(["pytest"])["details"]
    assert details["OMP_NUM_THREADS"] == "2" and details["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8" and details["found"] == "7"
    assert details["libraries"].startswith("numpy ") and f", pytest {pytest.__version__}" in details["libraries"]
    assert "TORCH_API_TOKEN" not in details and details["threads"].isdigit()


def test_a_library_is_digested_by_its_record(tmp_path, monkeypatch):
    """The list of file digests that every wheel brings, less what differs between installations of the same wheel."""
    info = tmp_path / "some_kernels-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-kernels\nVersion: 2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(identity, "_distributions", lambda: {"some_module": ["some-kernels"]})

    def of(record: str) -> tuple[str, bytes]:
        (info / "RECORD").write_text(record)
        return identity.library("some-kernels")

    first = of("some/k.so,sha256=aa,1\n")
    assert first[0] == "some-kernels 2.0"
    assert of("some/k.so,sha256=bb,1\n") != first
    assert (
        of("some/__pycache__/k.cpython-310.pyc,,\nsome/k.so,sha256=aa,1\nsome_kernels-2.0.dist-info/INSTALLER,sha256=cc,4\n")
        == first
    )
    assert identity.library("some_module")[0] == "some_module 2.0"


def test_libraries_that_are_not_installed_say_so(monkeypatch):
    assert identity.library("no_such_library") == ("no_such_library (not found)", b"")
    module = type(sys)("built_here")
    module.__version__ = "3.1"
    module.__file__ = str(Path(__file__))
    monkeypatch.setitem(sys.modules, "built_here", module)
    assert identity.library("built_here")[0] == "built_here 3.1" and identity.library("built_here")[1]


def test_a_detail_found_too_late_is_refused():
    kernel = lastbit.Kernel("k")
    kernel.detail("tile", 64)
    kernel._running = True
    with pytest.raises(RuntimeError, match="tune before run"):
        kernel.detail("tile", 128)
