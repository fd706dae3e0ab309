"""PyTorch, on the CPU and on any device that it names (``cuda``, ``npu``, ``xpu``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..formats import CANARY, STORAGE, Array
from .numpy import GUARD, describe_guards, guarded_memory

_TYPES = {
    "f32": ("float32", np.float32),
    "f16": ("float16", np.float16),
    "bf16": ("bfloat16", np.int16),
    "e4m3": ("float8_e4m3fn", np.uint8),
    "e5m2": ("float8_e5m2", np.uint8),
    "i32": ("int32", np.int32),
    "bool": ("bool", np.bool_),
}


class TorchArrays:
    """Tensors share memory with what came through the pipe on the CPU, and are copied once to another device."""

    name = "torch"

    def __init__(self, device: str) -> None:
        self.torch = import_module("torch")
        self.device = device
        kind = device.split(":")[0]
        self._of_device: Any = None if kind == "cpu" else getattr(self.torch, kind, None)

    def give(self, stored: Array, dtype: str) -> Any:
        """A view of the bits (bf16 as int16 first: numpy has no such type), then ``.to(device)``."""
        named, through = _TYPES[dtype]
        if stored.size == 0 and not stored.flags.writeable:
            stored = stored.copy()
        tensor = self.torch.from_numpy(stored.view(through))
        kind = getattr(self.torch, named)
        if tensor.dtype != kind:
            tensor = tensor.view(kind)
        return tensor if self.device == "cpu" else tensor.to(self.device)

    def index(self, positions: Array) -> Any:
        """An int64 tensor on the device."""
        return self.torch.from_numpy(positions).to(self.device)

    def concatenate(self, parts: Sequence[Any]) -> Any:
        """``torch.cat``."""
        return self.torch.cat(list(parts))

    def zeros(self, shape: tuple[int, ...], like: Any) -> Any:
        """``torch.zeros``."""
        return self.torch.zeros(shape, dtype=like.dtype, device=like.device)

    def guarded(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, Callable[[], str | None]] | None:
        """In host memory, or in one block of the device's."""
        if self.device == "cpu":
            stored, look = guarded_memory(shape, dtype)
            return self.give(stored, dtype), look
        bits = STORAGE[dtype].itemsize * 8
        canary = CANARY[dtype] - (1 << bits)
        edge = GUARD * 8 // bits
        size = int(np.prod(shape, dtype=np.int64))
        whole = self.torch.full((size + 2 * edge,), canary, dtype=getattr(self.torch, f"int{bits}"), device=self.device)

        def changed(part: Any) -> Array:
            found: Array = (part != canary).nonzero().flatten().cpu().numpy()
            return found

        def look_at_device() -> str | None:
            return describe_guards(changed(whole[:edge]), changed(whole[edge + size :]), edge)

        return whole[edge : edge + size].view(getattr(self.torch, _TYPES[dtype][0])).view(shape), look_at_device

    def wait(self, results: Sequence[Any]) -> None:
        """``torch.<device>.synchronize()``."""
        if self._of_device is not None:
            self._of_device.synchronize()

    def alive(self) -> bool:
        """One small sum on the device."""
        if self.device == "cpu":
            return True
        try:
            return bool((self.torch.ones(2, device=self.device) + 1).sum().item() == 4)
        except RuntimeError:
            return False

    def dirty(self, sizes: Sequence[int]) -> bool:
        """The caching allocator gives freed blocks out again."""
        blocks = [
            self.torch.full((size,), 0xFF, dtype=self.torch.uint8, device=self.device) for size in sizes for _ in range(4) if size
        ]
        del blocks
        return True

    def details(self) -> dict[str, str]:
        """Threads; the device's name; what torch was told about the precision of products."""
        torch = self.torch
        found = {"threads": str(torch.get_num_threads()), "float32_matmul_precision": str(torch.get_float32_matmul_precision())}
        if self._of_device is not None:
            for name in ("get_device_name", "get_device_capability"):
                try:
                    found[name.removeprefix("get_")] = str(getattr(self._of_device, name)(self.device))
                except (AttributeError, RuntimeError, TypeError):
                    continue
            found["deterministic_algorithms"] = str(torch.are_deterministic_algorithms_enabled())
            for library in ("cuda", "hip"):
                if version := getattr(torch.version, library, None):
                    found[library] = str(version)
        return found
