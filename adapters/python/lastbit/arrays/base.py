"""What the package needs of an array library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..formats import Array


class Arrays(Protocol):
    """An array library: numpy, PyTorch, JAX or CuPy.

    Arrays of the library are ``Any``: the package is typed without any of them installed.
    """

    name: str
    device: str
    """Where its arrays lie, e.g. ``cpu`` or ``cuda:0``."""

    def give(self, stored: Array, dtype: str) -> Any:
        """Stored bits (or int32, or bool) as an array of the library on the device; without a copy where it can be."""

    def index(self, positions: Array) -> Any:
        """int64 positions as something that indexes the first axis of the library's arrays."""

    def concatenate(self, parts: Sequence[Any]) -> Any:
        """Along the first axis; at least one part."""

    def zeros(self, shape: tuple[int, ...], like: Any) -> Any:
        """Zeros of another array's type and device."""

    def guarded(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, Callable[[], str | None]] | None:
        """An output full of canaries between two guards, and a look at the guards that says where one was changed.

        ``None`` where the library cannot write into an array.
        """

    def wait(self, results: Sequence[Any]) -> None:
        """Returns when the device has done all its work."""

    def alive(self) -> bool:
        """Whether the device still computes. After an illegal access it does not, until the process is restarted."""

    def dirty(self, sizes: Sequence[int]) -> bool:
        """Fills and frees blocks of these sizes in bytes, so that memory which is taken next and not written holds NaNs.

        False where the library does not let go of memory in a way that one could.
        """

    def details(self) -> dict[str, str]:
        """What results depend on: threads, the device's name."""
