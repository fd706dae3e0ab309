"""What is the same in every call of one problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .formats import Array


@dataclass(frozen=True, eq=False)
class Attributes:
    """What is the same in every call of one problem. Every field can be read from a call too: ``call.softmax_scale``."""

    q_heads: int
    """Query heads."""
    kv_heads: int
    """KV heads; divides ``q_heads``. Query head ``h`` reads KV head ``h // (q_heads // kv_heads)``."""
    d_qk: int
    """Head dim of q and k."""
    d_v: int
    """Head dim of v and o."""
    softmax_scale: float
    """Multiplies q.k; a value of f32."""
    causal: str | None
    """``"bottom_right"`` (row ``i`` sees keys up to ``i + kv - q``), ``"top_left"`` (up to ``i``), or ``None``."""
    window_left: int | None
    """Keys to the left of a row's own position that it sees, itself not counted; ``None`` is all."""
    window_right: int | None
    """Keys to the right of a row's own position that it sees; ``None`` is all that the causal mask leaves."""
    softcap: float | None
    """``softcap * tanh(score / softcap)``; a value of f32."""
    block_q: int
    """Query rows per tile, for kernels that let the caller choose."""
    out_dtype: str
    """Format of ``o``: ``f32``, ``f16`` or ``bf16``."""
    wants_lse: bool
    """Whether lse is read."""
    context: Mapping[str, Any] | None
    """``None``, or ``{"ranks": 2, "shards": "contiguous", "length": 64}`` (or ``"zigzag"``): the call stands for a group of ranks
    that share the sequence out, in chunks of a length where it is given."""
    knobs: Mapping[str, str]
    """Every knob that the kernel declared, at its default unless the call says otherwise."""

    def features(self, *, fp8_kv: bool = False, sinks: bool = False, alibi: bool = False) -> list[str]:
        """What the call asks for, in the names of ``Kernel(features=...)``."""
        mask = {"bottom_right": "causal", "top_left": "causal_top_left", None: "not_causal"}[self.causal]
        asked = {
            mask: True,
            "window": self.window_left is not None or self.window_right is not None,
            "softcap": self.softcap is not None,
            "sinks": sinks,
            "alibi": alibi,
            "grouped_heads": self.q_heads != self.kv_heads,
            "unequal_head_dims": self.d_qk != self.d_v,
            "fp8_kv": fp8_kv,
            "context_parallel": self.context is not None,
        }
        return [name for name, yes in asked.items() if yes]

    def visible(self, rows: int, keys: int) -> Array:
        """Which keys each row of one sequence sees, ``[rows, keys]``, bool. Row ``i`` stands at position ``i + keys - rows``;
        under a top-left causal mask at ``i``."""
        position = np.arange(rows)[:, None] + (0 if self.causal == "top_left" else keys - rows)
        key = np.arange(keys)[None, :]
        seen = np.ones((rows, keys), np.bool_)
        if self.causal is not None:
            seen &= key <= position
        if self.window_left is not None:
            seen &= key >= position - self.window_left
        if self.window_right is not None:
            seen &= key <= position + self.window_right
        return seen
