"""What a kernel returned, as stored bits; checked, never converted."""

from __future__ import annotations

from typing import Any

import numpy as np

from .formats import STORAGE, Array, name_of
from .frame import Tensor


class Unfit(Exception):
    """A result that is not what was asked for; the text says what to do."""


_TORCH = {"torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float64": "float64"}


def stored(value: Any, what: str) -> tuple[str, Array]:
    """Format and bits of an array or tensor of any library and device; without a copy where it can be. A type that is no format
    of outputs is returned by its own name.

    Raises :class:`Unfit` for what is no array.
    """
    if not isinstance(value, np.ndarray):
        library = type(value).__module__.partition(".")[0]
        if library == "torch":
            return _from_torch(value)
        if library == "cupy":
            value = value.get()
        elif library in ("jax", "jaxlib"):
            value = np.asarray(value)
        elif hasattr(value, "__dlpack__"):
            try:
                value = np.from_dlpack(value)
            except (BufferError, RuntimeError, TypeError) as error:
                reason = f"{what}: numpy cannot take a {type(value).__name__} over DLPack ({error}); return a numpy array"
                raise Unfit(f"{reason}, for bf16 its bits as uint16") from error
        elif isinstance(value, np.generic):
            value = np.asarray(value)
        else:
            raise Unfit(f"{what} is a {type(value).__name__}; return a numpy array, or a tensor of PyTorch, JAX or CuPy")
    dtype = name_of(value.dtype)
    if dtype is None:
        return value.dtype.name, value
    return dtype, value if value.dtype == STORAGE[dtype] else value.view(STORAGE[dtype])


def _from_torch(tensor: Any) -> tuple[str, Array]:
    dtype = _TORCH.get(str(tensor.dtype), str(tensor.dtype))
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if dtype == "bf16":
        import torch

        return dtype, tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    return dtype, tensor.numpy() if dtype in STORAGE else np.empty(tuple(tensor.shape), np.uint8)


def checked(value: Any, what: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """A result that has the format and the shape that were asked for.

    Raises :class:`Unfit`. Nothing is rounded here: a kernel that computes in another format than it claims would be judged by
    roundings that are not its own.
    """
    found, array = stored(value, what)
    if array.shape != shape:
        hint = ""
        if array.ndim == 2 and array.shape == shape[::-1]:
            hint = "; it is transposed: return it row by row, with the heads last"
        elif array.size == int(np.prod(shape, dtype=np.int64)) and array.ndim == len(shape):
            hint = "; the axes may be in another order: rows come before heads"
        raise Unfit(f"{what} has shape {list(array.shape)}, the call asks for {list(shape)}{hint}")
    if found != dtype:
        todo = (
            f"round it in the kernel (lastbit.narrow(x, {dtype!r}) for numpy)"
            if found in ("f32", "float64")
            else "convert it in the kernel"
        )
        if what == "o" and found == "f32":
            todo += f', or declare the format as "{dtype}->f32"'
        raise Unfit(f"{what} is {found}, the call asks for {dtype}: {todo}")
    return Tensor(dtype, array)
