"""The process's stdin and stdout as the protocol's pipes, kept from everything else in the process."""

from __future__ import annotations

import io
import mmap
import os
import sys

import numpy as np

from . import frame

_AT_ONCE = 1 << 18


class Pipe:
    """Reads frames and writes them. Reading is buffered: many small frames come with one system call.

    Every frame is written at once. Were answers kept back, a call that ends the process would take those before it along, and the
    wrong one would be blamed.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._held = b""
        self._at = 0

    def read(self, size: int) -> bytes:
        """The next bytes; fewer at the end of the input."""
        while len(self._held) - self._at < size:
            more = os.read(self._source, _AT_ONCE)
            if not more:
                break
            self._held = self._held[self._at :] + more
            self._at = 0
        taken = self._held[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def read_body(self, size: int) -> memoryview | None:
        """A body of ``size`` bytes in memory of its own, its data aligned to 64 bytes; ``None`` at the end of the input."""
        if size <= _AT_ONCE:
            whole = self.read(size)
            if len(whole) < size:
                return None
            body = aligned(size, 8 + int.from_bytes(whole[:8], "little"))
            body[:] = whole
            return body
        first = self.read(8)
        body = aligned(size, 8 + int.from_bytes(first, "little"))
        held = len(first) + min(len(self._held) - self._at, size - len(first))
        body[:held] = first + self.read(held - len(first))
        while held < size:
            read = self._read_into(body[held:])
            if read == 0:
                return None
            held += read
        return body

    def _read_into(self, memory: memoryview) -> int:
        if hasattr(os, "readv"):
            return os.readv(self._source, [memory])
        more = os.read(self._source, min(len(memory), _AT_ONCE))
        memory[: len(more)] = more
        return len(more)

    def write(self, pieces: list[memoryview]) -> None:
        """All bytes of all pieces."""
        if frame.size_of(pieces) <= _AT_ONCE:
            pieces = [memoryview(b"".join(pieces))]
        for piece in pieces:
            rest = piece.cast("B") if piece.nbytes else piece
            while rest.nbytes:
                rest = rest[os.write(self._sink, rest) :]


def aligned(size: int, data: int) -> memoryview:
    """``size`` bytes whose byte ``data`` lies at a multiple of 64."""
    memory = np.empty(size + 64, np.uint8)
    start = -(memory.__array_interface__["data"][0] + data) % 64
    return memory[start : start + size].data


class Shared:
    """The regions of shared memory: requests first, then answers."""

    def __init__(self, path: str, request_bytes: int, answer_bytes: int) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), request_bytes + answer_bytes)
        memory = memoryview(self._map)
        self._request = memory[:request_bytes]
        self._answer = memory[request_bytes:]

    def request(self, size: int) -> memoryview:
        """The body of a request; the memory itself."""
        if size > len(self._request):
            raise frame.Malformed(f"a body of {size} bytes in a request region of {len(self._request)}")
        return self._request[:size]

    def answer(self, pieces: list[memoryview]) -> bool:
        """Writes a body at the start of the answer region, unless it is too long."""
        if frame.size_of(pieces) > len(self._answer):
            return False
        at = 0
        for piece in pieces:
            if piece.nbytes:
                self._answer[at : at + piece.nbytes] = piece.cast("B")
            at += piece.nbytes
        return True


_claimed: Pipe | None = None


def claim() -> Pipe:
    """Takes stdin and stdout for the protocol; once, later calls return the same.

    Whatever writes to stdout from now on, in Python or below it, writes to stderr; whatever reads from stdin finds it at its end.
    So do the programs that a kernel starts (compilers, for one), which would otherwise eat frames.
    """
    global _claimed
    if _claimed is None:
        source, sink = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # what was printed before a crash is on stderr by then
        _claimed = Pipe(source, sink)
    return _claimed


def claim_if_driven() -> None:
    """Takes stdin and stdout as soon as the package is imported, where the harness says that it started this process.

    What a module prints while it is imported then does not get into the pipe. The variable is removed, so that processes started
    from here do not take it for theirs.
    """
    if os.environ.pop("LASTBIT_KERNEL", None) == "1":
        claim()


def at_terminal() -> bool:
    """Whether a person started the kernel."""
    return _claimed is None and sys.stdin is not None and sys.stdin.isatty()
