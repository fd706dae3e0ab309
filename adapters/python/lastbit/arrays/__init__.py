"""Array libraries. None but numpy is imported before a kernel names it."""

from __future__ import annotations

from .base import Arrays
from .numpy import NumpyArrays

NAMES = ("numpy", "torch", "jax", "cupy")
"""What a kernel may name."""


def of(name: str, device: str) -> Arrays:
    """The library of a name.

    Raises ``ImportError`` where it is not installed, ``ValueError`` for a name that is none.
    """
    if name == "numpy":
        return NumpyArrays()
    if name == "torch":
        from .torch import TorchArrays

        return TorchArrays(device)
    if name == "jax":
        from .jax import JaxArrays

        return JaxArrays(device)
    if name == "cupy":
        from .cupy import CupyArrays

        return CupyArrays(device)
    raise ValueError(f"arrays={name!r}: one of {', '.join(NAMES)}")


__all__ = ["NAMES", "Arrays", "of"]
