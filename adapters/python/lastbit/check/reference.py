"""Attention in f64, with the error that a sound kernel may have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..attributes import Attributes
from ..formats import Array

Reals = npt.NDArray[np.float64]

UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
"""Unit roundoffs."""
_SMALLEST_HALF = {"f32": 0.0, "f16": 2.0**-25, "bf16": 0.0}
"""Half of the smallest step of a format, where it is large enough to matter."""


class Extras(NamedTuple):
    """What a problem has besides q, k and v; each ``None`` or as in a call."""

    sinks: Array | None = None
    alibi_slopes: Array | None = None
    k_scales: Array | None = None
    v_scales: Array | None = None


class Expected(NamedTuple):
    """Results of one sequence, and how far off a sound kernel may be."""

    o: Reals
    o_bound: Reals
    lse: Reals
    lse_bound: Reals


def expected(a: Attributes, storage: str, q: Array, k: Array, v: Array, extras: Extras) -> Expected:
    """``q`` ``[rows, q_heads, d_qk]``, ``k``, ``v`` ``[keys, kv_heads, d]``, f32 before 8-bit scales.

    The bounds hold, to first order, for a kernel that sums in f32 in any order, and rounds scores, weights, partial results and
    scaled 8-bit keys and values to the storage format on the way. They follow from the values; nothing in them was tuned.
    """
    rows, keys, group = len(q), len(k), a.q_heads // a.kv_heads
    unit, f32 = max(UNIT[storage], UNIT[a.out_dtype]), UNIT["f32"]
    scaled = extras.k_scales is not None
    wide: list[Reals] = []
    for part, scales in ((k, extras.k_scales), (v, extras.v_scales)):
        exact = part.astype(np.float64) * (1 if scales is None else scales.astype(np.float64)[:, None])
        wide.append(np.repeat(exact, group, axis=1).transpose(1, 0, 2))
    wk, wv = wide
    wq = q.astype(np.float64).transpose(1, 0, 2)
    score = wq @ wk.transpose(0, 2, 1) * a.softmax_scale
    size = np.abs(wq) @ np.abs(wk).transpose(0, 2, 1) * abs(a.softmax_scale)
    off = 3 * unit * np.abs(score) + (a.d_qk + 8) * f32 * size + (2 * unit * size if scaled else 0)
    if a.softcap is not None:
        score = a.softcap * np.tanh(score / a.softcap)
        off = off + 4 * unit * np.abs(score) + 4 * f32 * a.softcap
    if extras.alibi_slopes is not None:
        first = 0 if a.causal == "top_left" else keys - rows
        distance = np.abs(np.arange(rows)[:, None] + first - np.arange(keys)[None, :])
        bias = extras.alibi_slopes.astype(np.float64)[:, None, None] * distance
        score = score - bias
        off = off + 3 * unit * (np.abs(bias) + np.abs(score))
    seen = np.broadcast_to(a.visible(rows, keys), score.shape)
    score = np.where(seen, score, -np.inf)
    off = np.where(seen, off, 0.0)
    sink = np.full((a.q_heads, rows, 1), -np.inf)
    if extras.sinks is not None:
        sink[...] = extras.sinks.astype(np.float64)[:, None, None]
    every = np.concatenate([score, sink], axis=-1)
    top = every.max(axis=-1, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    weight = np.exp(score - top)
    total = np.exp(every - top).sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    share = weight / np.where(total == 0, 1.0, total)
    o = share @ wv
    depth = np.where(np.isneginf(every), 0.0, top - every).max(axis=-1, initial=0.0)
    worst = off.max(axis=-1, initial=0.0) + 2 * f32 * depth
    relative = np.expm1(2 * worst) + (4 + (2 if scaled else 0)) * unit + (keys + 8) * f32
    smallest = _SMALLEST_HALF[storage]
    largest = np.abs(wv).max(axis=1, initial=0.0)[:, None, :]
    o_bound = relative[..., None] * (share @ np.abs(wv)) + keys * smallest * largest
    o_bound = o_bound + UNIT[a.out_dtype] * np.abs(o) + _SMALLEST_HALF[a.out_dtype] + 2.0**-126
    finite = np.where(np.isfinite(lse), lse, 0.0)
    lse_bound = worst + unit + (keys + 8) * f32 + 4 * f32 * (np.abs(top[..., 0]) + np.abs(finite) + 1)
    return Expected(o.transpose(1, 0, 2), o_bound.transpose(1, 0, 2), lse.T, lse_bound.T)
