"""The kernel's end of the protocol: frames in, answers out."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import arrays as array_libraries
from . import frame
from .attributes import Attributes
from .call import Call, DenseCall, Unsupported
from .decode import STORED, BatchCall, attributes_reader, call_of, sequences_of
from .formats import CANARY, STORAGE, bits, narrow
from .frame import Malformed, Tensor
from .pipe import Pipe, Shared
from .results import Unfit, checked, stored

if TYPE_CHECKING:
    from .kernel import Kernel

_TRACE = 8192
_REASON = 500
_DEVICE_ERRORS = ("CUDA error", "HIP error", "NPU error", "CUDA driver error", "device-side assert", "cudaError")


class WroteOutside(Exception):
    """A guard around an output was changed."""


class Server:
    """Answers for one kernel."""

    def __init__(self, kernel: Kernel, channel: Pipe) -> None:
        self._kernel = kernel
        self._pipe = channel
        self._shared: Shared | None = None
        self._arrays = array_libraries.of(kernel.arrays, kernel.device)
        self._knobs = dict(kernel.knobs)
        # The package's own, and no business of the kernel's functions: they do not see it.
        self._dirties = "workspace" not in self._knobs and self._arrays.dirty([64])
        defaults = {name: values[0] for name, values in self._knobs.items()}
        if self._dirties:
            self._knobs["workspace"] = ["clean", "dirty"]
        self._attributes = attributes_reader(defaults)
        self._forms = frozenset(kernel.forms())
        self._undeclared = lru_cache(maxsize=256)(self._first_undeclared)
        self._takes = {what: _takes(function) for what, function in kernel.functions.items()}

    def run(self) -> int:
        """Until the input ends, or the harness says goodbye. The process's exit code."""
        try:
            while True:
                header = self._pipe.read(frame.HEADER.size)
                if len(header) < frame.HEADER.size:
                    return 0
                magic, version, kind, number, length = frame.HEADER.unpack(header)
                if magic != frame.MAGIC or version != frame.VERSION or length > frame.LONGEST:
                    reason = (
                        f"this kernel speaks {frame.MAGIC.decode()} version {frame.VERSION} with bodies to {frame.LONGEST} bytes"
                    )
                    reason += f"; a frame came with {magic!r}, version {version} and {length} bytes"
                    self._fail(number, reason)
                    return 3
                end = self._frame(kind, number, length)
                if end is not None:
                    return end
        except BrokenPipeError:
            return 0

    def _frame(self, kind: int, number: int, length: int) -> int | None:
        shared = bool(kind & frame.SHARED)
        kind &= ~frame.SHARED
        try:
            if shared:
                if self._shared is None:
                    raise Malformed("a body in shared memory, which was not agreed on")
                memory: memoryview | None = self._shared.request(length)
            else:
                memory = self._pipe.read_body(length)
            if memory is None or kind == frame.BYE:
                return 0
            body = frame.decode(memory)
            if kind == frame.HELLO:
                return self._hello(number, body.metadata)
            if kind == frame.CALL:
                self._call(number, body, shared)
            else:
                self._fail(number, f"a frame of kind {kind} is not known to version {frame.VERSION} of the protocol")
        except Malformed as error:
            self._fail(number, str(error))
        return None

    def _hello(self, number: int, metadata: Mapping[str, str]) -> int | None:
        versions = metadata.get("versions", "")
        if str(frame.VERSION) not in versions.split(","):
            self._fail(
                number, f"this kernel speaks version {frame.VERSION} of the protocol, lastbit {versions or 'none that it names'}"
            )
            return 3
        if wanted := metadata.get("shared_memory"):
            try:
                regions = json.loads(wanted)
                self._shared = Shared(regions["path"], regions["request_bytes"], regions["answer_bytes"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                print(f"lastbit: no shared memory: {error}", file=sys.stderr)
        welcome = self._kernel.welcome(self._arrays, self._knobs, self._shared is not None)
        self._send(frame.WELCOME, number, frame.encode({"kernel": json.dumps(welcome)}))
        return None

    def _send(self, kind: int, number: int, body: list[memoryview], shared: bool = False) -> None:
        size = frame.size_of(body)
        if shared and self._shared is not None and self._shared.answer(body):
            kind |= frame.SHARED
            body = []
        header = frame.HEADER.pack(frame.MAGIC, frame.VERSION, kind, number, size)
        self._pipe.write([memoryview(header), *body])

    def _fail(self, number: int, reason: str, trace: str = "", breakage: str = "") -> None:
        told = {"reason": _line(reason)}
        if trace:
            told["trace"] = trace[-_TRACE:]
        if breakage:
            told["breakage"] = breakage
        self._send(frame.FAILED, number, frame.encode(told))

    def _call(self, number: int, body: frame.Body, shared: bool) -> None:
        try:
            results = self._compute(body)
        except Unsupported as refusal:
            self._send(frame.UNSUPPORTED, number, frame.encode({"reason": _line(str(refusal) or "no reason given")}))
        except WroteOutside as error:
            self._fail(number, str(error), breakage="wrote_outside")
        except (Malformed, Unfit) as error:
            self._fail(number, str(error))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self._fail(number, reason, traceback.format_exc(), self._breakage(error))
        else:
            self._send(frame.RESULT, number, frame.encode_result(*results), shared)

    def _breakage(self, error: Exception) -> str:
        """What an exception of a kernel is, where it is more than a failure."""
        text = str(error)
        if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text:
            return "out_of_memory"
        if type(error).__name__ in ("OutOfMemoryError", "CUDAOutOfMemoryError"):
            return ""
        # Not every error of a device stays: a launch with too many threads fails alone. Whether it did is asked of the device.
        if self._kernel.device == "cpu" or self._kernel.arrays == "numpy":
            return "device_error" if any(it in text for it in _DEVICE_ERRORS) else ""
        return "" if self._arrays.alive() else "device_error"

    def _compute(self, body: frame.Body) -> tuple[Tensor, Tensor | None]:
        attributes = self._attributes(body.metadata["attributes"] if "attributes" in body.metadata else "")
        form = _form(body)
        found = self._kernel.function_of(form)
        if found is None or form not in self._forms:
            raise Unsupported(f"does not answer {form} calls")
        what, function = found
        call = call_of(body, attributes, STORED if what == "sequence" else self._arrays)
        self._refuse(call)
        if self._dirties and attributes.knobs.get("workspace") == "dirty":
            self._dirty(call, body)
        if what == "sequence":
            return self._sequences(function, call)
        shape = (*body.tensors["q"].array.shape[:-1], attributes.d_v)
        o, lse = self._run(what, function, call, shape, attributes.out_dtype)
        return self._checked(o, lse, shape, attributes.wants_lse, attributes.out_dtype)

    def _refuse(self, call: BatchCall) -> None:
        """What the kernel did not declare, it is not asked for, whoever asks."""
        extras = (call.k_scales is not None, call.sinks is not None, call.alibi_slopes is not None)
        if missing := self._undeclared(call.attributes, call.q_dtype, extras):
            raise Unsupported(f"does not declare {missing}")

    def _first_undeclared(self, attributes: Attributes, q_dtype: str, extras: tuple[bool, bool, bool]) -> str | None:
        fp8_kv, sinks, alibi = extras
        features, formats = self._kernel.features, self._kernel.formats
        if features is not None:
            for feature in attributes.features(fp8_kv=fp8_kv, sinks=sinks, alibi=alibi):
                if feature not in features:
                    return feature
        asked = q_dtype if q_dtype == attributes.out_dtype else f"{q_dtype}->{attributes.out_dtype}"
        return asked if formats is not None and asked not in formats else None

    def _dirty(self, call: BatchCall, body: frame.Body) -> None:
        sizes = {tensor.array.nbytes for tensor in body.tensors.values()}
        scores = max((rows * keys for rows, keys in zip(call.q_lens, call.kv_lens)), default=0)
        heads, rows = call.attributes.q_heads, sum(call.q_lens)
        for elements in (scores, scores * heads, rows * heads, rows * heads * call.attributes.d_v):
            sizes |= {elements * 2, elements * 4, elements * 8}
        self._arrays.dirty(sorted(sizes))

    def _run(self, what: str, function: Callable[[Any], Any], call: Call, shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
        """Calls a function, waits for the device, looks at the guards. ``o`` and ``lse`` as the function has them."""
        given: dict[str, tuple[Any, Callable[[], str | None]]] = {}
        for name in self._takes[what]:
            pair = self._arrays.guarded(shape if name == "out" else shape[:-1], dtype if name == "out" else "f32")
            if pair is None:
                raise Unfit(f"{self._kernel.arrays} arrays cannot be written to: return o instead of taking {name}=")
            given[name] = pair
        result = function(call, **{name: array for name, (array, _) in given.items()})
        parts = result if isinstance(result, tuple) else (result,)
        if self._kernel.synchronize is not None:
            self._kernel.synchronize()
        self._arrays.wait([part for part in parts if part is not None])
        for name, (_, look) in given.items():
            if place := look():
                raise WroteOutside(f"{function.__name__} wrote outside {name}: {place}")
        if result is None and "out" not in given:
            raise Unfit(f"{function.__name__} returned None; return o, or (o, lse)")
        if len(parts) > 2:
            raise Unfit(f"{function.__name__} returned {len(parts)} things; return o, or (o, lse)")
        o, lse = parts[0], parts[1] if len(parts) == 2 else None
        return given["out"][0] if "out" in given else o, given["lse_out"][0] if "lse_out" in given else lse

    def _has_lse(self, lse: Any, wanted: bool) -> bool:
        if self._kernel.lse and lse is None and wanted:
            raise Unfit("no lse was returned: return (o, lse), or declare lse=False")
        if not self._kernel.lse and lse is not None:
            raise Unfit(
                "an lse was returned by a kernel that declares lse=False; declare lse=True to have it judged, or return o alone"
            )
        return lse is not None and wanted

    def _checked(self, o: Any, lse: Any, shape: tuple[int, ...], wanted: bool, dtype: str) -> tuple[Tensor, Tensor | None]:
        checked_o = checked(o, "o", dtype, shape)
        return checked_o, checked(lse, "lse", "f32", shape[:-1]) if self._has_lse(lse, wanted) else None

    def _sequences(self, function: Callable[[Any], Any], call: BatchCall) -> tuple[Tensor, Tensor | None]:
        """A function of one sequence over all of a call's; what it does not write keeps its canary."""
        attributes, widened = call.attributes, self._kernel.widen
        dtype = attributes.out_dtype
        shape = (*call.q.shape[:-1], attributes.d_v)
        o = np.full(shape, CANARY[dtype], f"<u{STORAGE[dtype].itemsize}").view(STORAGE[dtype])
        lse = np.full(shape[:-1], CANARY["f32"], "<u4").view("<f4")
        rows_of = _rows(call)
        for at, sequence in zip(rows_of, sequences_of(call, self._arrays, widened)):
            if sequence is None:
                continue
            shape = (sequence.rows, attributes.q_heads, attributes.d_v)
            out, out_lse = self._run("sequence", function, sequence, shape, "f32" if widened else dtype)
            o[at] = _rounded(out, "o", dtype, shape) if widened else checked(out, "o", dtype, shape).array
            if self._has_lse(out_lse, attributes.wants_lse):
                lse[at] = (
                    _rounded(out_lse, "lse", "f32", shape[:-1]) if widened else checked(out_lse, "lse", "f32", shape[:-1]).array
                )
        return Tensor(dtype, o), Tensor("f32", lse) if self._kernel.lse and attributes.wants_lse else None


def _takes(function: Callable[..., Any]) -> Sequence[str]:
    from .kernel import takes

    return sorted(takes(function))


def _line(text: str) -> str:
    """The first line, bounded."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _REASON else line[:_REASON] + "..."


def _form(body: frame.Body) -> str:
    """The form in the names of capabilities."""
    form = body.metadata.get("form", "")
    if form == "dense":
        return f"dense_{body.metadata.get('padding', '')}"
    if form == "paged" and "cache_rows" in body.tensors:
        return "contiguous"
    return form


def _rows(call: BatchCall) -> list[Any]:
    """Where the rows of each sequence stand in q."""
    if isinstance(call, DenseCall):
        return [
            (b, slice(call.seq_q - rows, call.seq_q) if call.padding == "left" else slice(0, rows))
            for b, rows in enumerate(call.q_lens)
        ]
    first, places = 0, []
    for rows in call.q_lens:
        places.append(slice(first, first + rows))
        first += rows
    return places


def _rounded(value: Any, what: str, dtype: str, shape: tuple[int, ...]) -> Any:
    """The result of a function of one sequence, f32 or f64, as stored bits of a format; canaries stay canaries."""
    found, array = stored(value, what)
    if found not in ("f32", "float64"):
        return checked(value, what, dtype, shape).array
    if array.shape != shape:
        checked(value, what, found, shape)
    result = narrow(array, dtype).view(STORAGE[dtype])
    if found == "f32" and dtype != "f32":
        unwritten = bits(np.ascontiguousarray(array)) == np.uint32(CANARY["f32"])
        if unwritten.any():
            bits(result)[unwritten] = CANARY[dtype]
    return result
