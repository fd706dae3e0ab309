"""A small problem, laid out for any call form, and a look at what came back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..attributes import Attributes
from ..formats import CANARY, STORAGE, Array, bits, narrow, widen
from ..frame import Body, Tensor
from .reference import Extras, expected


@dataclass(frozen=True)
class Problem:
    """What is asked. ``lengths`` are rows and keys of each sequence."""

    form: str
    storage: str
    attributes: Attributes
    lengths: tuple[tuple[int, int], ...]
    kv: str = ""
    """Format of keys and values; empty is ``storage``."""
    page_size: int = 4
    sinks: bool = False
    alibi: bool = False
    knobs: Mapping[str, str] = field(default_factory=dict)
    seed: int = 1

    def with_attributes(self, **changes: Any) -> Problem:
        """Other attributes."""
        return replace(self, attributes=replace(self.attributes, **changes))


_POISON = {"f32": 0x7FC0_0BAD, "f16": 0x7EAD, "bf16": 0x7FAD, "e4m3": 0x7F, "e5m2": 0x7F}


class Laid:
    """A problem with its values."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        a = problem.attributes
        self.kv = problem.kv or problem.storage
        random = np.random.default_rng(problem.seed)
        rows, keys = sum(q for q, _ in problem.lengths), sum(kv for _, kv in problem.lengths)
        self.q = _values(random, problem.storage, (rows, a.q_heads, a.d_qk))
        self.k = _values(random, self.kv, (keys, a.kv_heads, a.d_qk))
        self.v = _values(random, self.kv, (keys, a.kv_heads, a.d_v))
        eight = self.kv in ("e4m3", "e5m2")
        self.extras = Extras(
            sinks=random.standard_normal(a.q_heads).astype(np.float32) if problem.sinks else None,
            alibi_slopes=(0.5 ** (1.0 + np.arange(a.q_heads))).astype(np.float32) if problem.alibi else None,
            k_scales=(1 + np.arange(a.kv_heads)).astype(np.float32) / 4 if eight else None,
            v_scales=(3 + np.arange(a.kv_heads)).astype(np.float32) / 8 if eight else None,
        )

    def request(self) -> tuple[dict[str, str], dict[str, Tensor]]:
        """Metadata and tensors of the call."""
        problem, a = self.problem, self.problem.attributes
        told = {
            "q_heads": a.q_heads,
            "kv_heads": a.kv_heads,
            "d_qk": a.d_qk,
            "d_v": a.d_v,
            "softmax_scale": a.softmax_scale,
            "causal": a.causal,
            "window_left": a.window_left,
            "window_right": a.window_right,
            "softcap": a.softcap,
            "block_q": a.block_q,
            "out_dtype": a.out_dtype,
            "lse": a.wants_lse,
            "context": None,
            "knobs": dict(problem.knobs),
        }
        metadata = {"form": problem.form.partition("_")[0], "attributes": json.dumps(told)}
        q, k, v = Tensor(problem.storage, self.q), Tensor(self.kv, self.k), Tensor(self.kv, self.v)
        q_lens, kv_lens = zip(*problem.lengths)
        if problem.form == "varlen":
            tensors = {"q": q, "k": k, "v": v, "cu_seqlens_q": _offsets(q_lens), "cu_seqlens_k": _offsets(kv_lens)}
        elif problem.form.startswith("dense"):
            side = metadata["padding"] = problem.form.partition("_")[2]
            tensors = {
                name: _padded(tensor, lens, side)
                for name, tensor, lens in (("q", q, q_lens), ("k", k, kv_lens), ("v", v, kv_lens))
            }
            tensors |= {"lengths_q": _int(q_lens), "lengths_kv": _int(kv_lens)}
        else:
            metadata["form"] = "paged"
            tensors = {
                "q": q,
                "cu_seqlens_q": _offsets(q_lens),
                "cache_seqlens": _int(kv_lens),
                "prefix_lens": _int([0] * len(q_lens)),
            }
            tensors |= self._cache(kv_lens)
        for name, values in self.extras._asdict().items():
            if values is not None:
                tensors[name] = Tensor("f32", values)
        return metadata, tensors

    def _cache(self, kv_lens: tuple[int, ...]) -> dict[str, Tensor]:
        paged = self.problem.form == "paged"
        size = self.problem.page_size if paged else max(kv_lens) + 3
        width = max(-(-max(kv_lens) // size), 1)
        # Pages lie in another order than their sequences, with spare ones between.
        number = len(kv_lens) * width
        table = (np.arange(number) * 2 + 1)[::-1].reshape(len(kv_lens), width)
        caches = {}
        for name, packed in (("k_cache", self.k), ("v_cache", self.v)):
            cache = _poisoned(self.kv, (2 * number + 1, size, *packed.shape[1:]))
            first = 0
            for b, keys in enumerate(kv_lens):
                for j in range(keys):
                    cache[table[b, j // size], j % size] = packed[first + j]
                first += keys
            caches[name] = Tensor(self.kv, cache)
        return caches | ({"block_table": _int(table)} if paged else {"cache_rows": _int(table[:, 0])})

    def look(self, body: Body, conventions: Mapping[str, str], has_lse: bool) -> tuple[float, str | None]:
        """The largest error of a result as a share of what rounding explains, and what is wrong, if anything."""
        problem, a = self.problem, self.problem.attributes
        names = {"o", "lse"} if has_lse else {"o"}
        if set(body.tensors) != names:
            return 0.0, f"answered {', '.join(sorted(body.tensors)) or 'nothing'} instead of {', '.join(sorted(names))}"
        lead = body.tensors["o"].array.shape[:-2]
        if problem.form.startswith("dense"):
            wanted: tuple[int, ...] = (len(problem.lengths), max(q for q, _ in problem.lengths))
        else:
            wanted = (sum(q for q, _ in problem.lengths),)
        if lead != wanted or body.tensors["o"].dtype != a.out_dtype:
            return 0.0, f"o is {body.tensors['o'].dtype} {list(body.tensors['o'].array.shape)}"
        worst, row, key = 0.0, 0, 0
        for b, (rows, keys) in enumerate(problem.lengths):
            at: Any = slice(row, row + rows)
            if problem.form.startswith("dense"):
                at = (b, slice(wanted[1] - rows, wanted[1]) if problem.form == "dense_left" else slice(0, rows))
            q = widen(self.q[row : row + rows], problem.storage)
            k, v = (widen(part[key : key + keys], self.kv) for part in (self.k, self.v))
            row, key = row + rows, key + keys
            truth = expected(a, problem.storage, q, k, v, self.extras)
            parts = [("o", truth.o, truth.o_bound)] + ([("lse", truth.lse, truth.lse_bound)] if has_lse else [])
            for name, value, bound in parts:
                tensor = body.tensors[name]
                got = tensor.array[at]
                if (bits(np.ascontiguousarray(got)) == CANARY[tensor.dtype]).any():
                    return worst, f"{name} of sequence {b} was not written everywhere"
                share, wrong = _compare(
                    name, widen(got, tensor.dtype).astype(np.float64), value, bound, np.isneginf(truth.lse), conventions
                )
                worst = max(worst, share)
                if wrong:
                    return worst, f"sequence {b} ({rows} rows, {keys} keys): {wrong}"
        return worst, None


def _compare(
    name: str, got: Array, value: Array, bound: Array, empty: Array, conventions: Mapping[str, str]
) -> tuple[float, str | None]:
    """The largest error as a share of the bound, and where it is beyond."""
    rule = conventions.get("empty_row", "zero_neg_inf")
    if name == "lse":
        if conventions.get("lse_base") == "2":
            got = got * np.log(2.0)
        value = np.where(empty, {"zero_neg_inf": -np.inf, "zero_pos_inf": np.inf, "nan": np.nan}[rule], value)
    elif rule == "nan":
        value = np.where(empty[..., None], np.nan, value)
    same = (got == value) | (np.isnan(got) & np.isnan(value))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(got - value) / bound)
    error = np.where(np.isnan(error), np.inf, error)
    if error.size == 0:
        return 0.0, None
    at = np.unravel_index(int(error.argmax()), error.shape)
    share = float(error[at])
    if share <= 1:
        return share, None
    place = ", ".join(f"{axis} {index}" for axis, index in zip(("row", "head", "lane"), at))
    return share, f"{name} at {place} is {got[at]:.6g}, should be {value[at]:.6g} within {bound[at]:.2g}"


def _values(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype in ("e4m3", "e5m2"):
        # Patterns of magnitudes to 4: no NaN, no infinity, nothing that swamps the rest.
        magnitude = random.integers(0, 0x48 if dtype == "e4m3" else 0x44, shape)
        return (magnitude + 128 * random.integers(0, 2, shape)).astype(np.uint8)
    return narrow(random.standard_normal(shape), dtype).view(STORAGE[dtype])


def _poisoned(dtype: str, shape: tuple[int, ...]) -> Array:
    return np.full(shape, _POISON[dtype], f"<u{STORAGE[dtype].itemsize}").view(STORAGE[dtype])


def _padded(tensor: Tensor, lens: tuple[int, ...], side: str) -> Tensor:
    slots, first = max(lens), 0
    padded = _poisoned(tensor.dtype, (len(lens), slots, *tensor.array.shape[1:]))
    for b, length in enumerate(lens):
        at = slice(slots - length, slots) if side == "left" else slice(0, length)
        padded[b, at] = tensor.array[first : first + length]
        first += length
    return Tensor(tensor.dtype, padded)


def _int(values: Any) -> Tensor:
    return Tensor("i32", np.asarray(values, np.int32))


def _offsets(lens: tuple[int, ...]) -> Tensor:
    return _int(np.concatenate([[0], np.cumsum(lens)]))
