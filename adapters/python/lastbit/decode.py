"""From the body of a call frame to the call that a kernel sees."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from .arrays import Arrays
from .arrays.numpy import NumpyArrays
from .attributes import Attributes
from .call import DenseCall, PagedCall, SequenceCall, Unsupported, VarlenCall
from .formats import Array, widen
from .frame import Body, Malformed, Tensor

BatchCall = VarlenCall | DenseCall | PagedCall


class Stored(NumpyArrays):
    """numpy arrays of stored bits: what a call holds before it is handed to an array library."""

    def give(self, stored: Array, dtype: str) -> Array:
        """As it is."""
        return stored


STORED = Stored()

_FIELDS = frozenset(
    "q_heads kv_heads d_qk d_v softmax_scale causal window_left window_right softcap block_q out_dtype lse context knobs".split()
)


def attributes_reader(defaults: Mapping[str, str]) -> Callable[[str], Attributes]:
    """A reader of the ``attributes`` text that remembers: all calls of one problem have the same."""

    @lru_cache(maxsize=256)
    def read(text: str) -> Attributes:
        try:
            fields = json.loads(text)
            if unknown := sorted(fields.keys() - _FIELDS):
                raise Unsupported(
                    f"the call asks for {', '.join(unknown)}, which this version of the lastbit package does not know"
                )
            causal = fields["causal"]
            if causal not in ("bottom_right", "top_left", None):
                raise Unsupported(f"the call asks for a causal mask {causal!r}, which this version of the package does not know")
            softcap = fields["softcap"]
            return Attributes(
                q_heads=fields["q_heads"],
                kv_heads=fields["kv_heads"],
                d_qk=fields["d_qk"],
                d_v=fields["d_v"],
                # Printed as the shortest decimal that reads back as the same f32, which is not the same f64.
                softmax_scale=float(np.float32(fields["softmax_scale"])),
                causal=causal,
                window_left=fields["window_left"],
                window_right=fields["window_right"],
                softcap=None if softcap is None else float(np.float32(softcap)),
                block_q=fields["block_q"],
                out_dtype=fields["out_dtype"],
                wants_lse=fields["lse"],
                context=fields["context"],
                knobs={**defaults, **fields["knobs"]},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Malformed(f"attributes cannot be read: {type(error).__name__}: {error}") from error

    return read


def _offsets(tensor: Tensor, what: str, total: int) -> list[int]:
    """``[batch + 1]`` as the lengths between them."""
    offsets: list[int] = tensor.array.tolist()
    lengths = [after - before for before, after in zip(offsets, offsets[1:])]
    if not offsets or offsets[0] != 0 or min(lengths, default=0) < 0 or offsets[-1] > total:
        raise Malformed(f"{what} {offsets} are no ascending offsets into {total} rows")
    return lengths


def _lengths(tensor: Tensor, what: str, batch: int, most: int) -> list[int]:
    lengths: list[int] = tensor.array.tolist()
    if len(lengths) != batch or min(lengths, default=0) < 0 or max(lengths, default=0) > most:
        raise Malformed(f"{what} {lengths} do not fit {batch} sequences of at most {most}")
    return lengths


def call_of(body: Body, attributes: Attributes, arrays: Arrays) -> BatchCall:
    """The call of a frame, its tensors handed to an array library.

    Raises :class:`Malformed`, or :class:`Unsupported` for what this package does not know.
    """
    tensors = dict(body.tensors)
    form = body.metadata.get("form")

    def take(name: str) -> Any:
        stored = tensors.pop(name)
        return arrays.give(stored.array, stored.dtype)

    def take_if(name: str) -> Any | None:
        return take(name) if name in tensors else None

    try:
        q = tensors["q"]
        k = tensors["k_cache" if form == "paged" else "k"]
        common: dict[str, Any] = {
            "attributes": attributes,
            "arrays": arrays,
            "q_dtype": q.dtype,
            "k_dtype": k.dtype,
        }
        for name in ("sinks", "alibi_slopes", "k_scales", "v_scales"):
            common[name] = take_if(name)
        call: BatchCall
        if form == "varlen":
            call = VarlenCall(
                **common,
                q_lens=_offsets(tensors["cu_seqlens_q"], "cu_seqlens_q", len(q.array)),
                kv_lens=_offsets(tensors["cu_seqlens_k"], "cu_seqlens_k", len(k.array)),
                q=take("q"),
                k=take("k"),
                v=take("v"),
                cu_seqlens_q=take("cu_seqlens_q"),
                cu_seqlens_k=take("cu_seqlens_k"),
            )
        elif form == "dense":
            batch, seq_q = q.array.shape[:2]
            call = DenseCall(
                **common,
                q_lens=_lengths(tensors["lengths_q"], "lengths_q", batch, seq_q),
                kv_lens=_lengths(tensors["lengths_kv"], "lengths_kv", batch, k.array.shape[1]),
                q=take("q"),
                k=take("k"),
                v=take("v"),
                padding=body.metadata["padding"],
                lengths_q=take("lengths_q"),
                lengths_kv=take("lengths_kv"),
            )
        elif form == "paged":
            call = _paged(common, tensors, take, take_if)
        else:
            raise Unsupported(f"call form {form!r} is not known to this version of the lastbit package")
    except KeyError as error:
        raise Malformed(f"the call has no {error.args[0]}") from error
    if tensors:
        raise Unsupported(f"the call has {', '.join(sorted(tensors))}, which this version of the lastbit package does not know")
    return call


def _paged(
    common: dict[str, Any],
    tensors: dict[str, Tensor],
    take: Callable[[str], Any],
    take_if: Callable[[str], Any | None],
) -> PagedCall:
    cache = tensors["k_cache"].array.shape
    table, row_of = tensors.get("block_table"), tensors.get("cache_rows")
    if (table is None) == (row_of is None):
        raise Malformed("a paged call has either a block_table or cache_rows")
    q_lens = _offsets(tensors["cu_seqlens_q"], "cu_seqlens_q", len(tensors["q"].array))
    most = cache[1] * (table.array.shape[1] if table else 1)
    return PagedCall(
        **common,
        q_lens=q_lens,
        kv_lens=_lengths(tensors["cache_seqlens"], "cache_seqlens", len(q_lens), most),
        prefix_lens=tensors.pop("prefix_lens").array.tolist(),
        pages_of=table.array.tolist() if table else None,
        row_of=row_of.array.tolist() if row_of else None,
        q=take("q"),
        k_cache=take("k_cache"),
        v_cache=take("v_cache"),
        cu_seqlens_q=take("cu_seqlens_q"),
        cache_seqlens=take("cache_seqlens"),
        block_table=take_if("block_table"),
        cache_rows=take_if("cache_rows"),
    )


def sequences_of(call: BatchCall, arrays: Arrays, widened: bool) -> Iterator[SequenceCall | None]:
    """Each sequence of a call of stored bits, handed to an array library; ``None`` for one without rows."""
    prefixes = call.prefix_lens if isinstance(call, PagedCall) else [0] * call.batch
    extra = {
        name: None if (held := getattr(call, name)) is None else arrays.give(held, "f32")
        for name in ("sinks", "alibi_slopes", "k_scales", "v_scales")
    }
    for (q, k, v), prefix in zip(call.sequences(), prefixes):
        if len(q) == 0:
            yield None
            continue
        formats = {"q": call.q_dtype, "k": call.k_dtype, "v": call.k_dtype}
        parts = {"q": q, "k": k, "v": v}
        if widened:
            parts = {name: widen(part, formats[name]) for name, part in parts.items()}
            if call.k_scales is not None and call.v_scales is not None:
                parts["k"] = parts["k"] * call.k_scales[:, None]
                parts["v"] = parts["v"] * call.v_scales[:, None]
            formats = dict.fromkeys(formats, "f32")
        given = {name: arrays.give(np.ascontiguousarray(part), formats[name]) for name, part in parts.items()}
        yield SequenceCall(
            attributes=call.attributes,
            arrays=arrays,
            q_dtype=call.q_dtype,
            k_dtype=call.k_dtype,
            prefix_len=prefix,
            **extra,
            **given,
        )
