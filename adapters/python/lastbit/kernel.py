"""A kernel: what it declares, and the functions that compute."""

from __future__ import annotations

import faulthandler
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from . import arrays as array_libraries
from . import capabilities, identity, pipe
from .serve import Server

F = TypeVar("F", bound=Callable[..., Any])

_FORMS_OF = {
    "varlen": ("varlen",),
    "dense": ("dense_left", "dense_right"),
    "paged": ("paged", "contiguous"),
    "sequence": capabilities.FORMS,
}


class Kernel:
    """An attention kernel, as lastbit sees it.

    A kernel is a script that makes one of these, decorates its functions and ends in :meth:`run`::

        import lastbit

        kernel = lastbit.Kernel("my-attention", version="0.1", formats=["f32"], features=["causal", "grouped_heads"], lse=False)

        @kernel.varlen
        def varlen(call):
            return my_library.attention(call.q, call.k, call.v, call.cu_seqlens_q, call.cu_seqlens_k, call.softmax_scale)

        if __name__ == "__main__":
            kernel.run()

    Whatever is ``None`` is not limited: a case may ask for anything. Declare what the kernel *does*; a call that it cannot do all
    the same raises :class:`lastbit.Unsupported`.

    Parameters:
        name: a short name for reports.
        version: that of the kernel.
        forms: call forms, of ``varlen``, ``dense_left``, ``dense_right``, ``paged``, ``contiguous``; by default those of the
            decorated functions.
        features: what calls may ask for; the names are in the README.
        formats: storage formats, of ``f32``, ``f16``, ``bf16``; ``bf16->f32`` where ``o`` has another.
        head_dims: ``{"max": 256, "multiple_of": 8}``, or a list of head dims, or of pairs ``(d_qk, d_v)``.
        page_sizes: slots in a page.
        max_rows: the most rows, keys or batch entries of one call.
        empty_rows: it can do rows that see no key.
        empty_sequences: it can do sequences without rows, or without keys.
        ragged: it can do sequences of unlike lengths in one dense call, or one step over a contiguous cache.
        knobs: settings of its own that may change bits, each with its values, the default first; a call's are in ``call.knobs``.
        conventions: what it means otherwise than usual, such as ``{"lse_base": "2"}``.
        numerics: how it computes, in the words of a reference kernel, for a storage format or for all others (``"*"``).
        lse: whether it returns the log-sum-exp.
        compiles: it compiles for each new shape, so that shapes should come back.
        device: where it computes: ``cpu``, ``cuda``, ``cuda:1``, ``npu:0``.
        details: what else its bits depend on, by name.
        arrays: the library whose arrays its functions take: ``numpy``, ``torch``, ``jax`` or ``cupy``.
        libraries: distributions, modules, or paths of shared objects whose versions and files go into the digest.
        synchronize: called after each function, before results are read; for devices that ``arrays`` knows nothing of.
    """

    def __init__(
        self,
        name: str,
        version: str = "0",
        *,
        forms: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        formats: Sequence[str] | None = None,
        head_dims: Mapping[str, int] | Sequence[int | Sequence[int]] | None = None,
        page_sizes: Sequence[int] | None = None,
        max_rows: int | None = None,
        empty_rows: bool = True,
        empty_sequences: bool = True,
        ragged: bool = True,
        knobs: Mapping[str, Sequence[Any]] | None = None,
        conventions: Mapping[str, str] | None = None,
        numerics: Mapping[str, str] | None = None,
        lse: bool = True,
        compiles: bool = False,
        device: str = "cpu",
        details: Mapping[str, Any] | None = None,
        arrays: str = "numpy",
        libraries: Sequence[str] = (),
        synchronize: Callable[[], Any] | None = None,
    ) -> None:
        self.name = name
        self.version = str(version)
        self.device = str(device)
        self.features = capabilities.names("feature", features, capabilities.FEATURES)
        self.formats = capabilities.formats(formats)
        self.head_dims = capabilities.head_dims(head_dims)
        self.page_sizes = capabilities.page_sizes(page_sizes)
        self.max_rows = max_rows
        self.empty_rows = empty_rows
        self.empty_sequences = empty_sequences
        self.ragged = ragged
        self.knobs = capabilities.knobs(knobs)
        self.conventions = capabilities.conventions(conventions)
        self.numerics = {str(key): str(value) for key, value in (numerics or {}).items()}
        self.lse = lse
        self.compiles = compiles
        self.details = {str(key): str(value) for key, value in (details or {}).items()}
        self.arrays = capabilities.one_of("arrays", arrays, array_libraries.NAMES)
        self.libraries = list(libraries)
        self.synchronize = synchronize
        self._forms = capabilities.names("form", forms, capabilities.FORMS)
        self._running = False
        self.functions: dict[str, Callable[..., Any]] = {}
        """What was decorated, by ``varlen``, ``dense``, ``paged``, ``sequence``."""
        self.widen = True
        """Whether a function of one sequence sees f32 and has its result rounded."""

    def varlen(self, function: F) -> F:
        """Decorates the function of packed calls: ``f(call: VarlenCall)`` returns ``o``, or ``(o, lse)``."""
        return self._take("varlen", function)

    def dense(self, function: F) -> F:
        """Decorates the function of padded calls: ``f(call: DenseCall)`` returns ``o``, or ``(o, lse)``."""
        return self._take("dense", function)

    def paged(self, function: F) -> F:
        """Decorates the function of calls with a KV cache, in pages or contiguous: ``f(call: PagedCall)`` returns ``o``, or
        ``(o, lse)``. Name one of the two in ``forms`` if the other cannot be done."""
        return self._take("paged", function)

    @overload
    def sequence(self, function: F) -> F: ...
    @overload
    def sequence(self, *, widen: bool = True) -> Callable[[F], F]: ...
    def sequence(self, function: F | None = None, *, widen: bool = True) -> F | Callable[[F], F]:
        """Decorates a function of one sequence: ``f(call: SequenceCall)`` returns ``o`` or ``(o, lse)``.

        Every call form follows: rows and keys are gathered from the packed, padded or paged layout. With ``widen`` the arrays are
        f32 (exact, 8-bit keys and values multiplied with their scales in f32), and an f32 or f64 result is rounded once to the
        format of the call. With ``widen=False`` arrays and result have the call's formats. Another decorated function keeps its
        own form.
        """

        def take(function: F) -> F:
            self.widen = widen
            return self._take("sequence", function)

        return take if function is None else take(function)

    def _take(self, what: str, function: F) -> F:
        if what in self.functions:
            raise ValueError(f"{self.name}: two functions for {what}: {self.functions[what].__name__} and {function.__name__}")
        self.functions[what] = function
        return function

    def detail(self, name: str, value: Any) -> None:
        """Adds what else bits depend on to the identity, such as a configuration that an autotuner chose. Only before :meth:`run`
        answers the harness: a detail found later would not be in the report."""
        if self._running:
            raise RuntimeError(f"detail {name!r} comes after the kernel has told the harness who it is; tune before run()")
        self.details[str(name)] = str(value)

    def function_of(self, form: str) -> tuple[str, Callable[..., Any]] | None:
        """The function that answers calls of a form, and what it was decorated as."""
        for what, forms in _FORMS_OF.items():
            if form in forms and what in self.functions:
                return what, self.functions[what]
        return None

    def forms(self) -> list[str]:
        """Call forms: those given, or those of the decorated functions."""
        able = [form for form in capabilities.FORMS if self.function_of(form)]
        if not able:
            raise ValueError(f"{self.name}: no function is decorated with @kernel.varlen, .dense, .paged or .sequence")
        if self._forms is None:
            return able
        if missing := [form for form in self._forms if form not in able]:
            raise ValueError(f"{self.name}: forms names {', '.join(missing)}, and no decorated function answers such calls")
        return self._forms

    def guarded(self) -> bool:
        """Whether every function writes into outputs that it is given, so that a write outside of them is seen."""
        taken = [takes(self.functions[what]) for what in self.functions]
        return self.arrays != "jax" and all("out" in names and ("lse_out" in names or not self.lse) for names in taken)

    def welcome(self, library: array_libraries.Arrays, knobs: Mapping[str, Sequence[str]], shared_memory: bool) -> dict[str, Any]:
        """What the kernel tells the harness."""
        names = [] if self.arrays == "numpy" else [self.arrays]
        who = identity.describe(self.name, self.version, self.device, [*names, *self.libraries], self.details, library.details())
        told: dict[str, Any] = {
            "identity": who,
            "shared_memory": shared_memory,
            "lse": self.lse,
            "guarded": self.guarded(),
            "compiles": self.compiles,
            "forms": self.forms(),
            "features": self.features,
            "formats": self.formats,
            "head_dims": self.head_dims,
            "page_sizes": self.page_sizes,
            "max_rows": self.max_rows,
            "empty_rows": self.empty_rows,
            "empty_sequences": self.empty_sequences,
            "ragged": self.ragged,
            "knobs": dict(knobs),
            "conventions": self.conventions,
            "numerics": self.numerics,
        }
        return {key: value for key, value in told.items() if value is not None and value != {}}

    def run(self) -> None:
        """Answers the harness over stdin and stdout until it says goodbye, and ends the process.

        Put it last, under ``if __name__ == "__main__":``. Whatever prints from here on prints to stderr.
        """
        self.forms()
        if pipe.at_terminal():
            sys.exit(
                f"{sys.argv[0]} is a kernel for lastbit, which drives it over its stdin. To try it: lastbit-check {sys.argv[0]}"
            )
        channel = pipe.claim()
        faulthandler.enable()  # a segmentation fault leaves Python's stack on stderr, which lastbit shows
        server = Server(self, channel)
        self._running = True
        sys.exit(server.run())


def takes(function: Callable[..., Any]) -> frozenset[str]:
    """Which of ``out`` and ``lse_out`` a function takes as a keyword."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters
    return frozenset(name for name in ("out", "lse_out") if name in parameters and parameters[name].kind in kinds)
