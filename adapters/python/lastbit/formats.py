"""Number formats as bit patterns: what numpy stores them as, and exact conversions from and to them.

A format is named as everywhere in lastbit: ``f32``, ``f16``, ``bf16``, ``e4m3`` (E4M3FN), ``e5m2``. numpy has no bf16 and no
8-bit floats. Where `ml_dtypes <https://pypi.org/project/ml_dtypes>`_ is installed arrays carry its types; without it they are
``uint16`` and ``uint8`` arrays of bit patterns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

STORAGE: dict[str, np.dtype[Any]] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "bf16": np.dtype("<u2"),
    "e4m3": np.dtype("u1"),
    "e5m2": np.dtype("u1"),
}
"""What the bits of a format are stored as: a type that plain numpy has."""

CANARY: dict[str, int] = {"f32": 0xFFC0_002A, "bf16": 0xFFEA, "f16": 0xFE2A}
"""What an output holds until it is written: a NaN that no arithmetic gives."""

_ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


@lru_cache(maxsize=None)  # noqa: UP033
def presented(dtype: str) -> np.dtype[Any]:
    """The numpy type in which a kernel sees a format: that of ``ml_dtypes`` where numpy has none and it is installed."""
    if dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            return STORAGE[dtype]
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
        return found
    return STORAGE[dtype]


@lru_cache(maxsize=64)
def name_of(dtype: np.dtype[Any]) -> str | None:
    """The format of a numpy type; ``None`` for any other. ``uint16`` is taken for bf16: no output is made of integers."""
    if dtype == np.float32:
        return "f32"
    if dtype == np.float16:
        return "f16"
    if dtype == np.uint16 or dtype.name == "bfloat16":
        return "bf16"
    return None


def bits(array: Array) -> Array:
    """The same memory as unsigned integers of the element's size."""
    return array.view(np.dtype(f"<u{array.dtype.itemsize}"))


@lru_cache(maxsize=None)  # noqa: UP033
def _e4m3_values() -> npt.NDArray[np.float32]:
    """The 256 values of E4M3FN: exponent bias 7, no infinities, NaN where all bits but the sign are set."""
    pattern = np.arange(256)
    exponent, mantissa = pattern >> 3 & 15, pattern & 7
    value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    value[(pattern & 0x7F) == 0x7F] = np.nan
    return np.where(pattern < 128, value, -value).astype(np.float32)


def widen(array: Array, dtype: str) -> npt.NDArray[np.float32]:
    """The values of an array of some format as float32, exactly.

    ``array`` holds ``dtype`` as ``ml_dtypes`` has it or as bit patterns (``uint16`` for bf16, ``uint8`` for e4m3 and e5m2).

    >>> widen(np.array([0x3F80, 0xC000], dtype=np.uint16), "bf16")
    array([ 1., -2.], dtype=float32)
    """
    if dtype == "f32":
        return np.asarray(array, dtype=np.float32)
    if dtype == "f16":
        return array.astype(np.float32)
    pattern = bits(array)
    if dtype == "bf16":
        return (pattern.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == "e5m2":
        return (pattern.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32)
    if dtype == "e4m3":
        return _e4m3_values()[pattern]
    raise ValueError(f"unknown format {dtype!r}: one of {', '.join(STORAGE)}")


def _to_odd(array: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    """float64 as float32 bits rounded to odd: cut off, with the last bit set where anything was lost.

    Rounding the result again to a format with at least two bits fewer is then the same as rounding once (Boldo and Melquiond,
    "Emulation of a FMA and correctly rounded sums", 2008).
    """
    nearest = array.astype(np.float32)
    pattern = nearest.view(np.uint32)
    back = nearest.astype(np.float64)
    lost = (back != array) & ~np.isnan(array)
    away = lost & (np.abs(back) > np.abs(array))
    return np.where(lost, (pattern - away.astype(np.uint32)) | np.uint32(1), pattern)


def narrow(array: Array, dtype: str) -> Array:
    """float32 or float64 values rounded once to ``f32``, ``f16`` or ``bf16``, to nearest, ties to even.

    Subnormals are kept, what is too large becomes an infinity, and a NaN stays a NaN. The result has the type in which kernels
    see the format (:func:`presented`).

    >>> narrow(np.float32([1.0, 3.140625]), "bf16").view(np.uint16)
    array([16256, 16457], dtype=uint16)
    """
    if array.dtype not in (np.float32, np.float64):
        raise TypeError(f"narrow takes float32 or float64, not {array.dtype}")
    array = np.atleast_1d(array) if array.ndim == 0 else array
    with np.errstate(all="ignore"):
        if dtype == "f32":
            return array.astype(np.float32)
        pattern = array.view(np.uint32) if array.dtype == np.float32 else _to_odd(array)
        if dtype == "f16":
            return pattern.view(np.float32).astype(np.float16)
        if dtype == "bf16":
            rounded = (pattern + (np.uint32(0x7FFF) + (pattern >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)
            nan = (pattern & np.uint32(0x7FFF_FFFF)) > np.uint32(0x7F80_0000)
            rounded = np.where(nan, pattern >> np.uint32(16) | np.uint32(0x40), rounded)
            return rounded.astype(np.uint16).view(presented("bf16"))
    raise ValueError(f"cannot round to {dtype!r}: one of f32, f16, bf16")
