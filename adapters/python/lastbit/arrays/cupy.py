"""CuPy. It has no bf16: such arrays come as ``uint16`` bit patterns, 8-bit floats as ``uint8``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..formats import CANARY, STORAGE, Array
from .numpy import GUARD, describe_guards


class CupyArrays:
    """Arrays are copied once to the device."""

    name = "cupy"

    def __init__(self, device: str) -> None:
        self.cupy = import_module("cupy")
        self.device = device
        self._number = int(device.partition(":")[2] or 0)
        self.cupy.cuda.Device(self._number).use()

    def give(self, stored: Array, dtype: str) -> Any:
        """``cupy.asarray``."""
        return self.cupy.asarray(stored)

    def index(self, positions: Array) -> Any:
        """On the device."""
        return self.cupy.asarray(positions)

    def concatenate(self, parts: Sequence[Any]) -> Any:
        """``cupy.concatenate``."""
        return self.cupy.concatenate(list(parts))

    def zeros(self, shape: tuple[int, ...], like: Any) -> Any:
        """``cupy.zeros``."""
        return self.cupy.zeros(shape, like.dtype)

    def guarded(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, Callable[[], str | None]] | None:
        """In one block of the device's memory."""
        word = np.dtype(f"<u{STORAGE[dtype].itemsize}")
        edge = GUARD // word.itemsize
        size = int(np.prod(shape, dtype=np.int64))
        whole = self.cupy.full(size + 2 * edge, CANARY[dtype], word)

        def changed(part: Any) -> Array:
            found: Array = self.cupy.asnumpy(self.cupy.flatnonzero(part != CANARY[dtype]))
            return found

        def look() -> str | None:
            return describe_guards(changed(whole[:edge]), changed(whole[edge + size :]), edge)

        return whole[edge : edge + size].view(STORAGE[dtype]).reshape(shape), look

    def wait(self, results: Sequence[Any]) -> None:
        """``cupy.cuda.Device.synchronize``."""
        self.cupy.cuda.Device(self._number).synchronize()

    def alive(self) -> bool:
        """One small sum on the device."""
        try:
            return bool(self.cupy.ones(2).sum().item() == 2)
        except RuntimeError:
            return False

    def dirty(self, sizes: Sequence[int]) -> bool:
        """The memory pool gives freed blocks out again."""
        blocks = [self.cupy.full(size, 0xFF, np.uint8) for size in sizes for _ in range(4) if size]
        del blocks
        return True

    def details(self) -> dict[str, str]:
        """The device's name, and the versions of CUDA."""
        runtime = self.cupy.cuda.runtime
        name = runtime.getDeviceProperties(self._number)["name"]
        return {"device_name": name.decode() if isinstance(name, bytes) else str(name), "cuda": str(runtime.runtimeGetVersion())}
