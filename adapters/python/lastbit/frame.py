"""Frames of the protocol: a header of 24 bytes and a safetensors body. The contract is ``docs/protocol.md`` of lastbit."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .formats import STORAGE, Array

MAGIC = b"LBT1"
VERSION = 1
HEADER = struct.Struct("<4sHHQQ")
"""magic, version, kind, id, length of the body."""
LONGEST = 4 << 30
"""The longest body."""
SHARED = 1 << 15
"""Set in the kind of a frame whose body is in shared memory."""

HELLO, WELCOME, CALL, RESULT, UNSUPPORTED, FAILED, BYE = range(1, 8)

_NAMES = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "e4m3", "F8_E5M2": "e5m2", "I32": "i32"}
_CODES = {name: code for code, name in _NAMES.items()}
_STORED = {**STORAGE, "i32": np.dtype("<i4")}


class Malformed(Exception):
    """A frame or body that is none."""


class Tensor(NamedTuple):
    """A tensor of a body: its format (``i32`` too) and its bits as plain numpy stores them."""

    dtype: str
    array: Array


class Body(NamedTuple):
    """What a frame says: scalars as strings, and tensors by name."""

    metadata: Mapping[str, str]
    tensors: dict[str, Tensor]


class _Place(NamedTuple):
    name: str
    dtype: str
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    start: int


@lru_cache(maxsize=512)
def _layout(header: bytes) -> tuple[dict[str, str], tuple[_Place, ...], int]:
    """Metadata, places and length of the data. Calls of one shape have equal headers, so that most are read once."""
    try:
        fields = json.loads(header)
        metadata = {str(key): str(value) for key, value in fields.pop("__metadata__", {}).items()}
        places = []
        for name, field in fields.items():
            dtype = _NAMES[field["dtype"]]
            shape = tuple(int(size) for size in field["shape"])
            start, end = field["data_offsets"]
            stored = _STORED[dtype]
            if min(shape, default=0) < 0 or start < 0 or end - start != prod(shape) * stored.itemsize:
                raise Malformed(f"tensor {name}: {field}")
            places.append(_Place(name, dtype, stored, shape, start))
        longest = max((field["data_offsets"][1] for field in fields.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Malformed(f"the body's header cannot be read: {type(error).__name__}: {error}") from error
    return metadata, tuple(places), longest


def decode(body: memoryview) -> Body:
    """The tensors of a body, as views of its memory.

    Raises :class:`Malformed`.
    """
    if len(body) < 8:
        raise Malformed(f"a body of {len(body)} bytes has no header")
    length = int.from_bytes(body[:8], "little")
    data = 8 + length
    if data > len(body):
        raise Malformed(f"the body's header has {length} bytes, the body {len(body)}")
    metadata, places, longest = _layout(bytes(body[8:data]))
    if data + longest > len(body):
        raise Malformed(f"tensors end at byte {data + longest} of a body of {len(body)}")
    tensors = {name: Tensor(dtype, np.ndarray(shape, stored, body, data + start)) for name, dtype, stored, shape, start in places}
    return Body(metadata, tensors)


def padded(header: bytes) -> bytes:
    """A header with its length before it, padded with spaces so that the data starts at a multiple of 64 bytes of the body."""
    header += b" " * (-(8 + len(header)) % 64)
    return len(header).to_bytes(8, "little") + header


def _header(tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None) -> bytes:
    """The header of tensors that lie one after another, with its length."""
    fields: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    start = 0
    for name, dtype, shape in tensors:
        end = start + prod(shape) * _STORED[dtype].itemsize
        fields[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [start, end]}
        start = end
    return padded(json.dumps(fields, separators=(",", ":")).encode())


@lru_cache(maxsize=512)
def _result_header(o: str, shape: tuple[int, ...], lse: bool) -> bytes:
    return _header(([("lse", "f32", shape[:-1])] if lse else []) + [("o", o, shape)])


def encode_result(o: Tensor, lse: Tensor | None) -> list[memoryview]:
    """The body of a result in pieces, which are views of the arrays where those are laid out in row-major order. ``lse`` comes
    first: no format of ``o`` is wider, so both are aligned."""
    pieces = [memoryview(_result_header(o.dtype, o.array.shape, lse is not None))]
    if lse is not None:
        pieces.append(memoryview(np.ascontiguousarray(lse.array)))
    pieces.append(memoryview(np.ascontiguousarray(o.array)))
    return pieces


def encode(metadata: Mapping[str, str], tensors: Mapping[str, Tensor] | None = None) -> list[memoryview]:
    """A body with scalars, in pieces; tensors with the widest elements come first, so that all are aligned."""
    order = sorted((tensors or {}).items(), key=lambda item: -item[1].array.dtype.itemsize)
    header = _header(((name, tensor.dtype, tensor.array.shape) for name, tensor in order), metadata)
    return [memoryview(header), *(memoryview(np.ascontiguousarray(tensor.array)) for _, tensor in order)]


def size_of(pieces: Iterable[memoryview]) -> int:
    """Bytes of a body in pieces."""
    return sum([piece.nbytes for piece in pieces])
