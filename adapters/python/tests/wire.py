"""Frames of the protocol, as the harness sends and reads them."""

from __future__ import annotations

from typing import Any

from lastbit import frame
from lastbit.frame import Body


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
