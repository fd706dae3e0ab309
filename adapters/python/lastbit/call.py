"""What a kernel is asked for: one dataclass for each call form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arrays import Arrays
from .attributes import Attributes
from .formats import Array


class Unsupported(Exception):
    """Raise it for a call that the kernel cannot do. The case is skipped, and the reason counted in the report."""


@dataclass
class Call:
    """What calls of all forms have. Arrays are those of the library that the kernel named (``Kernel(arrays=...)``)."""

    attributes: Attributes
    arrays: Arrays = field(repr=False)
    """The array library."""
    q_dtype: str
    """Format of q: ``f32``, ``f16`` or ``bf16``."""
    k_dtype: str
    """Format of k and v: that of q, or ``e4m3``, ``e5m2``."""
    sinks: Any | None
    """``[q_heads]``, f32: a logit for each head that takes part in the softmax, with a zero value vector."""
    alibi_slopes: Any | None
    """``[q_heads]``, f32: the bias is ``-slope * |position - key|``."""
    k_scales: Any | None
    """``[1]`` or ``[kv_heads]``, f32: 8-bit keys are multiplied with it."""
    v_scales: Any | None
    """As ``k_scales``, for values."""

    @property
    def q_heads(self) -> int:
        """Query heads. See :attr:`Attributes.q_heads`."""
        return self.attributes.q_heads

    @property
    def kv_heads(self) -> int:
        """KV heads. See :attr:`Attributes.kv_heads`."""
        return self.attributes.kv_heads

    @property
    def d_qk(self) -> int:
        """Head dim of q and k. See :attr:`Attributes.d_qk`."""
        return self.attributes.d_qk

    @property
    def d_v(self) -> int:
        """Head dim of v and o. See :attr:`Attributes.d_v`."""
        return self.attributes.d_v

    @property
    def softmax_scale(self) -> float:
        """Multiplies q.k. See :attr:`Attributes.softmax_scale`."""
        return self.attributes.softmax_scale

    @property
    def causal(self) -> str | None:
        """``"bottom_right"``, ``"top_left"`` or ``None``. See :attr:`Attributes.causal`."""
        return self.attributes.causal

    @property
    def window_left(self) -> int | None:
        """Keys to the left that a row sees. See :attr:`Attributes.window_left`."""
        return self.attributes.window_left

    @property
    def window_right(self) -> int | None:
        """Keys to the right that a row sees. See :attr:`Attributes.window_right`."""
        return self.attributes.window_right

    @property
    def softcap(self) -> float | None:
        """``softcap * tanh(score / softcap)``. See :attr:`Attributes.softcap`."""
        return self.attributes.softcap

    @property
    def block_q(self) -> int:
        """Query rows per tile. See :attr:`Attributes.block_q`."""
        return self.attributes.block_q

    @property
    def out_dtype(self) -> str:
        """Format of ``o``. See :attr:`Attributes.out_dtype`."""
        return self.attributes.out_dtype

    @property
    def wants_lse(self) -> bool:
        """Whether lse is read. See :attr:`Attributes.wants_lse`."""
        return self.attributes.wants_lse

    @property
    def context(self) -> Mapping[str, Any] | None:
        """The context-parallel group, if it is one. See :attr:`Attributes.context`."""
        return self.attributes.context

    @property
    def knobs(self) -> Mapping[str, str]:
        """Every knob that the kernel declared. See :attr:`Attributes.knobs`."""
        return self.attributes.knobs

    @property
    def gqa(self) -> int:
        """Query heads for each KV head."""
        return self.attributes.q_heads // self.attributes.kv_heads

    def mask(self, rows: int, keys: int) -> Any:
        """Which keys each row of one sequence sees: ``[rows, keys]``, bool, True is visible: causal limit and window."""
        return self.arrays.give(self.attributes.visible(rows, keys), "bool")


@dataclass
class _Batch(Call):
    """A call of many sequences."""

    q_lens: list[int] = field(kw_only=True)
    """Rows of each sequence."""
    kv_lens: list[int] = field(kw_only=True)
    """Keys of each sequence."""

    @property
    def batch(self) -> int:
        """Sequences."""
        return len(self.q_lens)

    @property
    def max_seqlen_q(self) -> int:
        """The most rows of a sequence."""
        return max(self.q_lens, default=0)

    @property
    def max_seqlen_k(self) -> int:
        """The most keys of a sequence."""
        return max(self.kv_lens, default=0)

    def _packed(self, parts: Sequence[Any]) -> Any:
        return self.arrays.concatenate(parts)

    def assemble(self, o: Sequence[Any], lse: Sequence[Any] | None = None) -> Any:
        """Results of each sequence in turn (``o`` ``[rows, q_heads, d_v]``, ``lse`` ``[rows, q_heads]``) as what the call asks
        for: ``o``, or ``(o, lse)``."""
        return self._packed(o) if lse is None else (self._packed(o), self._packed(lse))


@dataclass
class VarlenCall(_Batch):
    """Packed sequences, as ``flash_attn_varlen_func`` takes them.

    ``o`` is ``[total_q, q_heads, d_v]``, ``lse`` ``[total_q, q_heads]``.
    """

    q: Any
    """``[total_q, q_heads, d_qk]``"""
    k: Any
    """``[total_kv, kv_heads, d_qk]``"""
    v: Any
    """``[total_kv, kv_heads, d_v]``"""
    cu_seqlens_q: Any
    """``[batch + 1]``, int32: offsets into ``q``, from 0 to ``total_q``."""
    cu_seqlens_k: Any
    """``[batch + 1]``, int32: offsets into ``k`` and ``v``."""

    def sequences(self) -> Iterator[tuple[Any, Any, Any]]:
        """``q``, ``k`` and ``v`` of each sequence; some may have no rows, or no keys."""
        row = key = 0
        for rows, keys in zip(self.q_lens, self.kv_lens):
            yield self.q[row : row + rows], self.k[key : key + keys], self.v[key : key + keys]
            row, key = row + rows, key + keys


@dataclass
class DenseCall(_Batch):
    """Padded sequences. ``o`` is ``[batch, seq_q, q_heads, d_v]``, ``lse`` ``[batch, seq_q, q_heads]``.

    Slots of padding hold NaN or huge values, and their results are not read: but a padding key must not reach a valid row.
    """

    q: Any
    """``[batch, seq_q, q_heads, d_qk]``"""
    k: Any
    """``[batch, seq_kv, kv_heads, d_qk]``"""
    v: Any
    """``[batch, seq_kv, kv_heads, d_v]``"""
    padding: str
    """``"left"`` or ``"right"``: where the padding of each sequence stands."""
    lengths_q: Any
    """``[batch]``, int32: valid rows."""
    lengths_kv: Any
    """``[batch]``, int32: valid keys."""

    @property
    def seq_q(self) -> int:
        """Slots of rows."""
        return int(self.q.shape[1])

    @property
    def seq_kv(self) -> int:
        """Slots of keys."""
        return int(self.k.shape[1])

    def _valid(self, slots: int, length: int) -> slice:
        return slice(slots - length, slots) if self.padding == "left" else slice(0, length)

    def sequences(self) -> Iterator[tuple[Any, Any, Any]]:
        """``q``, ``k`` and ``v`` of each sequence, without the padding."""
        for b, (rows, keys) in enumerate(zip(self.q_lens, self.kv_lens)):
            at, slots = self._valid(self.seq_q, rows), self._valid(self.seq_kv, keys)
            yield self.q[b, at], self.k[b, slots], self.v[b, slots]

    def padded_mask(self) -> Any:
        """``[batch, seq_q, seq_kv]``, bool, True is visible: causal limit, window and padding. A row of padding sees nothing."""
        seen = np.zeros((self.batch, self.seq_q, self.seq_kv), np.bool_)
        for b, (rows, keys) in enumerate(zip(self.q_lens, self.kv_lens)):
            seen[b, self._valid(self.seq_q, rows), self._valid(self.seq_kv, keys)] = self.attributes.visible(rows, keys)
        return self.arrays.give(seen, "bool")

    def _packed(self, parts: Sequence[Any]) -> Any:
        padded = []
        for part in parts:
            rest = self.arrays.zeros((self.seq_q - part.shape[0], *part.shape[1:]), part)
            padded.append(self.arrays.concatenate([rest, part] if self.padding == "left" else [part, rest]))
        return self.arrays.concatenate(padded).reshape((self.batch, self.seq_q, *parts[0].shape[1:]))


@dataclass
class PagedCall(_Batch):
    """New rows against a KV cache that already holds their keys, as ``flash_attn_with_kvcache`` takes them. ``o`` is
    ``[total_q, q_heads, d_v]``, ``lse`` ``[total_q, q_heads]``.

    With a block table the cache is in pages; without one it is contiguous and sequence ``b`` has row ``cache_rows[b]`` of it.
    Slots beyond a sequence's keys hold NaN or huge values. An entry of bucket padding has one row and no keys.
    """

    q: Any
    """``[total_q, q_heads, d_qk]``"""
    k_cache: Any
    """``[pages, page_size, kv_heads, d_qk]``, or ``[entries, capacity, kv_heads, d_qk]``"""
    v_cache: Any
    """As ``k_cache``, with ``d_v``."""
    cu_seqlens_q: Any
    """``[batch + 1]``, int32: offsets into ``q``."""
    cache_seqlens: Any
    """``[batch]``, int32: valid keys, the new rows' included."""
    block_table: Any | None
    """``[batch, width]``, int32: position ``j`` lies in page ``block_table[b, j // page_size]``; ``None`` without pages."""
    cache_rows: Any | None
    """``[batch]``, int32; ``None`` for a cache in pages."""
    prefix_lens: list[int]
    """Leading positions of each sequence that came from the prefix cache."""
    pages_of: list[list[int]] | None = field(repr=False)
    """``block_table`` as lists."""
    row_of: list[int] | None = field(repr=False)
    """``cache_rows`` as a list."""

    @property
    def page_size(self) -> int:
        """Slots in a page; of a contiguous cache its capacity."""
        return int(self.k_cache.shape[1])

    def slots(self, b: int) -> Array:
        """``[keys]``, int64: where each key of sequence ``b`` lies, with the first two axes of the cache taken as one."""
        position = np.arange(self.kv_lens[b], dtype=np.int64)
        size = self.page_size
        if self.pages_of is not None:
            return np.asarray(self.pages_of[b], np.int64)[position // size] * size + position % size
        assert self.row_of is not None
        return self.row_of[b] * size + position

    def gather_cache(self, b: int) -> tuple[Any, Any]:
        """Keys ``[keys, kv_heads, d_qk]`` and values ``[keys, kv_heads, d_v]`` of sequence ``b``; views of a contiguous cache."""
        keys = self.kv_lens[b]
        if self.row_of is not None:
            return self.k_cache[self.row_of[b], :keys], self.v_cache[self.row_of[b], :keys]
        index = self.arrays.index(self.slots(b))
        k, v = self.k_cache, self.v_cache
        return k.reshape((-1, *k.shape[2:]))[index], v.reshape((-1, *v.shape[2:]))[index]

    def sequences(self) -> Iterator[tuple[Any, Any, Any]]:
        """``q``, ``k`` and ``v`` of each sequence; keys and values are gathered."""
        row = 0
        for b, rows in enumerate(self.q_lens):
            k, v = self.gather_cache(b)
            yield self.q[row : row + rows], k, v
            row += rows


@dataclass
class SequenceCall(Call):
    """One sequence of a call of any form. ``o`` is ``[rows, q_heads, d_v]``, ``lse`` ``[rows, q_heads]``."""

    q: Any
    """``[rows, q_heads, d_qk]``, f32 (exact), at least one row."""
    k: Any
    """``[keys, kv_heads, d_qk]``, f32; 8-bit keys are multiplied with their scale in f32. There may be none."""
    v: Any
    """``[keys, kv_heads, d_v]``, f32; likewise."""
    prefix_len: int
    """Leading keys that came from the prefix cache; 0 outside paged calls."""

    @property
    def rows(self) -> int:
        """Rows of q, at least 1."""
        return int(self.q.shape[0])

    @property
    def keys(self) -> int:
        """Keys."""
        return int(self.k.shape[0])

    def mask(self, rows: int | None = None, keys: int | None = None) -> Any:
        """As :meth:`Call.mask`, for this sequence."""
        return super().mask(self.rows if rows is None else rows, self.keys if keys is None else keys)
