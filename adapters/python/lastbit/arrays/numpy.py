"""numpy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..formats import CANARY, STORAGE, Array, presented

GUARD = 4096
"""Bytes on either side of an output: a vector or a whole row written too far still ends there."""


def guarded_memory(shape: tuple[int, ...], dtype: str) -> tuple[Array, Callable[[], str | None]]:
    """An output in host memory as stored bits, full of canaries between two guards, aligned to 64 bytes, and a look at them."""
    word = np.dtype(f"<u{STORAGE[dtype].itemsize}")
    canary = word.type(CANARY[dtype])
    size = int(np.prod(shape, dtype=np.int64)) * word.itemsize
    memory = np.empty(size + 2 * GUARD + 64, np.uint8)
    first = -memory.ctypes.data % 64
    whole = memory[first : first + size + 2 * GUARD].view(word)
    whole[...] = canary
    edge = GUARD // word.itemsize
    inner = whole[edge : whole.size - edge]

    def look() -> str | None:
        return describe_guards(
            np.flatnonzero(whole[:edge] != canary),
            np.flatnonzero(whole[whole.size - edge :] != canary),
            edge,
        )

    return inner.reshape(shape).view(STORAGE[dtype]), look


def describe_guards(before: Array, after: Array, edge: int) -> str | None:
    """Where guards were changed, from the positions in them; ``None`` if nowhere."""
    places = []
    if before.size:
        places.append(f"{before.size} elements before its start, up to {edge - int(before[0])} away")
    if after.size:
        places.append(f"{after.size} elements after its end, up to {int(after[-1]) + 1} away")
    return " and ".join(places) or None


class NumpyArrays:
    """numpy on the CPU. bf16 and 8-bit floats come as ``ml_dtypes`` types, or as bit patterns where that is not installed."""

    name = "numpy"
    device = "cpu"

    def give(self, stored: Array, dtype: str) -> Array:
        """The stored bits themselves."""
        return stored.view(presented(dtype)) if dtype in ("bf16", "e4m3", "e5m2") else stored

    def index(self, positions: Array) -> Array:
        """As they are."""
        return positions

    def concatenate(self, parts: Sequence[Any]) -> Array:
        """``numpy.concatenate``."""
        return np.concatenate(parts)

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        """``numpy.zeros``."""
        return np.zeros(shape, like.dtype)

    def guarded(self, shape: tuple[int, ...], dtype: str) -> tuple[Array, Callable[[], str | None]] | None:
        """In host memory."""
        stored, look = guarded_memory(shape, dtype)
        return self.give(stored, dtype), look

    def wait(self, results: Sequence[Any]) -> None:
        """numpy computes at once."""

    def alive(self) -> bool:
        """There is no device to lose."""
        return True

    def dirty(self, sizes: Sequence[int]) -> bool:
        """The allocator gives freed blocks of a size to whoever asks for that size next."""
        blocks = [np.full(size, 0xFF, np.uint8) for size in sizes for _ in range(4) if size]
        del blocks
        return True

    def details(self) -> dict[str, str]:
        """Threads, as far as the process may have them."""
        return {"threads": str(cpus())}


def cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
