"""JAX. It brings ``ml_dtypes`` along, so that every format has a numpy type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ..formats import Array, presented
from .numpy import cpus


class JaxArrays:
    """Arrays are put on the device when a call comes; JAX may share host memory that is aligned to 64 bytes."""

    name = "jax"

    def __init__(self, device: str) -> None:
        self.jax = import_module("jax")
        self.numpy = import_module("jax.numpy")
        kind, _, number = device.partition(":")
        self._device = self.jax.devices(kind)[int(number or 0)]
        self.device = device

    def give(self, stored: Array, dtype: str) -> Any:
        """``jax.device_put``. The array may be a view of the call's memory, which lives as long as the call."""
        if dtype in ("bf16", "e4m3", "e5m2"):
            stored = stored.view(presented(dtype))
        return self.jax.device_put(stored, self._device)

    def index(self, positions: Array) -> Array:
        """As they are."""
        return positions

    def concatenate(self, parts: Sequence[Any]) -> Any:
        """``jax.numpy.concatenate``."""
        return self.numpy.concatenate(list(parts))

    def zeros(self, shape: tuple[int, ...], like: Any) -> Any:
        """``jax.numpy.zeros``."""
        return self.jax.device_put(self.numpy.zeros(shape, like.dtype), self._device)

    def guarded(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, Callable[[], str | None]] | None:
        """JAX arrays cannot be written to."""
        return None

    def wait(self, results: Sequence[Any]) -> None:
        """``jax.block_until_ready``."""
        self.jax.block_until_ready(list(results))

    def alive(self) -> bool:
        """One small sum on the device."""
        if self.device == "cpu":
            return True
        try:
            return float(self.jax.device_put(1.0, self._device) + 1.0) == 2.0
        except RuntimeError:
            return False

    def dirty(self, sizes: Sequence[int]) -> bool:
        """XLA plans its memory itself."""
        return False

    def details(self) -> dict[str, str]:
        """The device's name, and the precision of products."""
        precision = self.jax.config.jax_default_matmul_precision
        found = {"device_name": str(self._device.device_kind), "matmul_precision": str(precision)}
        return found | ({"threads": str(cpus())} if self.device == "cpu" else {})
