"""The kernel under test as a child process, driven as the harness does it."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

from .. import frame
from ..frame import Body, Tensor

_TAIL = 40


class Broken(Exception):
    """The process ended, hung, or wrote what is no frame."""


class Answer(NamedTuple):
    """A frame from the kernel."""

    kind: int
    body: Body


class Child:
    """A kernel process."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        self._seconds = seconds
        self._number = 0
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LASTBIT_KERNEL": "1"},
        )
        self._answers: queue.SimpleQueue[tuple[int, Answer] | Broken] = queue.SimpleQueue()
        self._noise: deque[str] = deque(maxlen=_TAIL)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._listener = threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True)
        self._reader.start()
        self._listener.start()

    def ask(self, kind: int, metadata: Mapping[str, str], tensors: Mapping[str, Tensor] | None = None) -> Answer:
        """Sends a request and waits for its answer.

        Raises :class:`Broken`.
        """
        self._number += 1
        self._send(kind, frame.encode(metadata, tensors))
        try:
            found = self._answers.get(timeout=self._seconds)
        except queue.Empty:
            self._process.kill()
            raise Broken(f"no answer within {self._seconds:g} s" + self._said()) from None
        if isinstance(found, Broken):
            raise found
        number, answer = found
        if number != self._number:
            raise Broken(f"answered request {number} when asked {self._number}")
        return answer

    def end(self) -> str | None:
        """Says goodbye. What was wrong with how the process ended, if anything."""
        try:
            self._number += 1
            self._send(frame.BYE, [])
        except Broken as broken:
            return str(broken)
        try:
            code = self._process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            return f"did not end within {self._seconds:g} s after the goodbye"
        finally:
            self.kill()
        return None if code == 0 else f"ended with {code} after the goodbye" + self._said()

    def kill(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for thread, stream in ((self._reader, self._process.stdout), (self._listener, self._process.stderr)):
            thread.join()
            assert stream is not None
            stream.close()
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass

    def _send(self, kind: int, pieces: list[memoryview]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        header = frame.HEADER.pack(frame.MAGIC, frame.VERSION, kind, self._number, frame.size_of(pieces))
        try:
            stdin.write(b"".join([header, *pieces]))
            stdin.flush()
        except (BrokenPipeError, OSError):
            raise self._ended() from None

    def _ended(self) -> Broken:
        try:
            code = self._process.wait(self._seconds)
        except subprocess.TimeoutExpired:
            return Broken("closed its stdout" + self._said())
        self._listener.join(timeout=1)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Broken(f"the process {how}" + self._said())

    def _said(self) -> str:
        tail = "\n".join(self._noise).rstrip()
        return f"; its stderr:\n{tail}" if tail else ""

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._noise.append(line.decode(errors="replace").rstrip("\n"))

    def _read(self, stream: IO[bytes]) -> None:
        while True:
            header = stream.read(frame.HEADER.size)
            if len(header) == 0:
                self._answers.put(self._ended())
                return
            try:
                if header[:4] != frame.MAGIC[: len(header)] or len(header) < frame.HEADER.size:
                    text = header.decode(errors="replace")
                    raise Broken(f"{text!r} came over stdout where a frame should: import lastbit before anything that prints")
                _, version, kind, number, length = frame.HEADER.unpack(header)
                if version != frame.VERSION or length > frame.LONGEST:
                    raise Broken(f"a frame of version {version} with {length} bytes")
                body = stream.read(length)
                if len(body) < length:
                    raise Broken(f"{len(body)} of {length} bytes of a frame came")
                self._answers.put((number, Answer(kind, frame.decode(memoryview(body)))))
            except (Broken, frame.Malformed) as error:
                self._answers.put(error if isinstance(error, Broken) else Broken(str(error)))
                self._process.kill()
                return


def command_of(words: Sequence[str]) -> list[str]:
    """A script of Python runs with this interpreter; anything else as it stands."""
    return [sys.executable, *words] if words[0].endswith(".py") else list(words)
