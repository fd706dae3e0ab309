"""Rounding and widening, against arithmetic that is plainly right."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

from lastbit.formats import STORAGE, narrow, presented, widen

warnings.simplefilter("error")


def bits(array):
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def nearest(value: float, table: np.ndarray, overflow: Fraction) -> int:
    """The pattern of the nearest non-negative value, ties to the even pattern; by fractions, nothing is rounded on the way."""
    exact = Fraction(abs(value))
    if exact >= overflow:
        return len(table)  # infinity
    at = int(np.searchsorted(table, abs(value)))
    candidates = [n for n in (at - 1, at) if 0 <= n < len(table)]
    return min(candidates, key=lambda n: (abs(Fraction(float(table[n])) - exact), n & 1))


TABLES = {
    # All finite non-negative values, in order, and where rounding reaches infinity.
    "bf16": (np.arange(0x7F80, dtype=np.uint16), Fraction(2) ** 128 - Fraction(2) ** 119),
    "f16": (np.arange(0x7C00, dtype=np.uint16), Fraction(65520)),
}


def values_of(dtype: str) -> tuple[np.ndarray, Fraction]:
    pattern, overflow = TABLES[dtype]
    return widen(pattern.view(STORAGE[dtype]), dtype).astype(np.float64), overflow


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_widen_and_narrow_are_inverse_for_every_pattern(dtype):
    pattern = np.arange(0x10000, dtype=np.uint32).astype(np.uint16)
    wide = widen(pattern.view(STORAGE[dtype]), dtype)
    back = bits(narrow(wide, dtype))
    finite = ~np.isnan(wide)
    assert (back[finite] == pattern[finite]).all()
    assert np.isnan(widen(narrow(wide[~finite], dtype), dtype)).all()
    with np.errstate(invalid="ignore"):
        from_f64 = bits(narrow(wide.astype(np.float64), dtype))
    assert (from_f64[finite] == pattern[finite]).all()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_midpoints_and_their_neighbours_round_once(dtype):
    """Every tie between two values, and f64 values a hair to both sides of it: those are what rounding twice gets wrong."""
    values, _ = values_of(dtype)
    pattern = np.arange(len(values) - 1)
    middle = (values[:-1] + values[1:]) / 2
    assert (bits(narrow(middle, dtype)) == pattern + (pattern & 1)).all()
    assert (bits(narrow(np.nextafter(middle, 0), dtype)) == pattern).all()
    assert (bits(narrow(np.nextafter(middle, np.inf), dtype)) == pattern + 1).all()
    assert (bits(narrow(-np.nextafter(middle, np.inf), dtype)) == pattern + 1 + 0x8000).all()
    exact_in_f32 = middle.astype(np.float32) == middle
    assert (bits(narrow(middle[exact_in_f32].astype(np.float32), dtype)) == (pattern + (pattern & 1))[exact_in_f32]).all()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_random_values_round_to_the_nearest(dtype, source):
    random = np.random.default_rng(7)
    word = np.dtype(f"u{np.dtype(source).itemsize}")
    any_bits = random.integers(0, 2 ** (8 * word.itemsize), 2000, dtype=word).view(source)
    ordinary = (random.standard_normal(2000) * 2.0 ** random.integers(-30, 20, 2000)).astype(source)
    both = np.concatenate([any_bits, ordinary])
    both = both[np.isfinite(both)]
    values, overflow = values_of(dtype)
    expected = [nearest(float(x), values, overflow) | (0x8000 if np.signbit(x) else 0) for x in both]
    assert bits(narrow(both, dtype)).tolist() == expected


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_the_ends(dtype):
    values, overflow = values_of(dtype)
    edge = float(overflow)
    got = bits(
        narrow(np.array([edge, np.nextafter(edge, 0), -edge, 1e300, np.inf, -np.inf, 5e-324, -5e-324, -0.0]), dtype)
    ).tolist()
    infinity = len(values)
    assert got == [infinity, infinity - 1, infinity | 0x8000, infinity, infinity, infinity | 0x8000, 0, 0x8000, 0x8000]


def test_nan_stays_nan_even_where_its_payload_is_low():
    low = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(widen(narrow(low, "bf16"), "bf16")).all()
    assert np.signbit(widen(narrow(low, "bf16"), "bf16")).tolist() == [False, True, False]
    assert np.isnan(widen(narrow(np.array([np.nan]), "bf16"), "bf16")).all()


def test_f64_to_f32_is_one_rounding():
    assert narrow(np.array([1 + 2.0**-24, 1 + 3 * 2.0**-24, 1e300]), "f32").tolist() == [1.0, 1 + 2.0**-22, np.inf]


def test_8_bit_values_by_the_definition():
    def value(pattern: int, exponent_bits: int, bias: int) -> float:
        mantissa_bits = 7 - exponent_bits
        exponent, mantissa = pattern >> mantissa_bits & (1 << exponent_bits) - 1, pattern & (1 << mantissa_bits) - 1
        sign = -1.0 if pattern & 0x80 else 1.0
        if exponent == 0:
            return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
        return sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)

    every = np.arange(256, dtype=np.uint8)
    e4m3, e5m2 = widen(every, "e4m3"), widen(every, "e5m2")
    for pattern in range(256):
        if pattern & 0x7F == 0x7F:
            assert np.isnan(e4m3[pattern])
        else:
            assert e4m3[pattern] == value(pattern, 4, 7)
        if pattern & 0x7F > 0x7C:
            assert np.isnan(e5m2[pattern])
        elif pattern & 0x7F == 0x7C:
            assert np.isinf(e5m2[pattern])
        else:
            assert e5m2[pattern] == value(pattern, 5, 15)
    assert np.signbit(e4m3[0x80]) and np.signbit(e5m2[0x80])


def test_against_ml_dtypes_where_it_is_installed():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    random = np.random.default_rng(3)
    x = random.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    x = x[~np.isnan(x)]
    with np.errstate(over="ignore"):
        assert (bits(narrow(x, "bf16")) == bits(x.astype(ml_dtypes.bfloat16))).all()
    every = np.arange(256, dtype=np.uint8)
    for name, dtype in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        np.testing.assert_array_equal(widen(every, name), every.view(dtype).astype(np.float32))
    assert narrow(x[:3], "bf16").dtype == ml_dtypes.bfloat16 == presented("bf16")


def test_what_narrow_refuses():
    with pytest.raises(TypeError, match="int64"):
        narrow(np.array([1]), "bf16")
    with pytest.raises(ValueError, match="e4m3"):
        narrow(np.array([1.0]), "e4m3")
    with pytest.raises(ValueError, match="f8"):
        widen(np.array([1], np.uint8), "f8")
