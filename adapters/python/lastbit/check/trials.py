"""Which small calls show whether a kernel does what it declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..attributes import Attributes
from ..capabilities import FEATURES, FORMATS, FORMS
from .problem import Problem

_MASKS = {"causal": "bottom_right", "not_causal": None, "causal_top_left": "top_left"}


class Trial(NamedTuple):
    """One line of the table."""

    group: str
    name: str
    problem: Problem | None
    """``None``: not tried, for the reason in ``why``."""
    declared: bool
    """The kernel said that it can: a refusal is a wrong declaration."""
    why: str = ""


def plain(welcome: Mapping[str, Any]) -> Problem:
    """The plainest call that a kernel declares."""
    features = welcome.get("features", FEATURES)
    storage, _, out = welcome.get("formats", ["f32"])[0].partition("->")
    d_qk, d_v = _head_dims(welcome)[0]
    causal = next((text for name, text in _MASKS.items() if name in features), "bottom_right")
    attributes = Attributes(
        q_heads=2,
        kv_heads=2,
        d_qk=d_qk,
        d_v=d_v,
        softmax_scale=float(np.float32(d_qk**-0.5)),
        causal=causal,
        window_left=None,
        window_right=None,
        softcap=None,
        block_q=64,
        out_dtype=out or storage,
        wants_lse=bool(welcome.get("lse", True)),
        context=None,
        knobs={},
    )
    lengths = ((5, 9), (1, 7)) if welcome.get("ragged", True) else ((5, 9), (5, 9))
    page_size = welcome.get("page_sizes", [4])[0]
    return Problem(welcome.get("forms", FORMS)[0], storage, attributes, lengths, page_size=page_size)


def _head_dims(welcome: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Pairs to try, the plainest first."""
    declared = welcome.get("head_dims")
    if isinstance(declared, list):
        pairs = [(int(qk), int(v)) for qk, v in declared]
        return sorted(pairs, key=lambda pair: (pair[0] != pair[1], pair))[:8]
    step, most = (1, 64) if declared is None else (declared.get("multiple_of", 1), declared["max"])
    plainest = min(max(step, -(-16 // step) * step), most)
    return [(size, size) for size in dict.fromkeys([plainest, step, most // step * step])]


def trials(welcome: Mapping[str, Any]) -> Iterator[Trial]:
    """Everything that is declared, one thing at a time off the plainest call."""
    base = plain(welcome)
    declared = "features" in welcome
    for form in welcome.get("forms", FORMS):
        yield Trial("form", form, replace(base, form=form), "forms" in welcome)
    for form in welcome.get("formats", FORMATS):
        storage, _, out = form.partition("->")
        yield Trial(
            "format", form, replace(base, storage=storage).with_attributes(out_dtype=out or storage), "formats" in welcome
        )
    for feature in welcome.get("features", FEATURES):
        yield from _feature(feature, base, welcome, declared)
    for d_qk, d_v in _head_dims(welcome):
        scale = float(np.float32(d_qk**-0.5))
        problem = base.with_attributes(d_qk=d_qk, d_v=d_v, softmax_scale=scale)
        yield Trial("head dims", f"{d_qk}, {d_v}", problem, "head_dims" in welcome)
    if "paged" in welcome.get("forms", FORMS):
        for size in welcome.get("page_sizes", [1, 16])[:8]:
            yield Trial("page size", str(size), replace(base, form="paged", page_size=size), "page_sizes" in welcome)
    for name, values in welcome.get("knobs", {}).items():
        for value in values[1:]:
            yield Trial("knob", f"{name}={value}", replace(base, knobs={name: value}), True)
    if welcome.get("empty_rows", True) and base.attributes.causal == "bottom_right":
        yield Trial("lengths", "rows that see no key", replace(base, lengths=((5, 3), (5, 3))), "empty_rows" in welcome)
    if welcome.get("empty_sequences", True):
        short = ((0, 4), (3, 5), (2, 0)) if welcome.get("empty_rows", True) else ((0, 4), (3, 5))
        yield Trial("lengths", "empty sequences", replace(base, lengths=short), "empty_sequences" in welcome)
    longer = 130 if (welcome.get("max_rows") or 130) >= 130 else int(welcome["max_rows"])
    yield Trial("lengths", f"{longer} keys", replace(base, lengths=((min(33, longer), longer),)), True)


def _feature(feature: str, base: Problem, welcome: Mapping[str, Any], declared: bool) -> Iterator[Trial]:
    conventions = welcome.get("conventions", {})
    touched = {
        "causal": ("anchor", ("as_called", "bottom_right")),
        "causal_top_left": ("anchor", ("as_called", "top_left")),
        "window": ("window", ("keys_to_left",)),
        "sinks": ("sink_in_lse", ("yes",)),
        "alibi": ("alibi", ("distance",)),
        "fp8_kv": ("kv_scales", ("applied",)),
    }.get(feature)
    if touched and conventions.get(touched[0], touched[1][0]) not in touched[1]:
        yield Trial("feature", feature, None, declared, f"declared otherwise: {touched[0]} = {conventions[touched[0]]}")
        return
    d_qk, d_v = base.attributes.d_qk, base.attributes.d_v
    if feature in _MASKS:
        yield Trial("feature", feature, base.with_attributes(causal=_MASKS[feature]), declared)
    elif feature == "window":
        changes: dict[str, Any] = {"window_left": 2}
        if base.attributes.causal is None:
            changes["window_right"] = 1
        yield Trial("feature", feature, base.with_attributes(**changes), declared)
    elif feature == "softcap":
        yield Trial("feature", feature, base.with_attributes(softcap=2.0), declared)
    elif feature == "sinks":
        yield Trial("feature", feature, replace(base, sinks=True), declared)
    elif feature == "alibi":
        yield Trial("feature", feature, replace(base, alibi=True), declared)
    elif feature == "grouped_heads":
        for q_heads, kv_heads in ((4, 2), (4, 1)):
            problem = base.with_attributes(q_heads=q_heads, kv_heads=kv_heads)
            yield Trial("feature", f"{feature} {q_heads}:{kv_heads}", problem, declared)
    elif feature == "unequal_head_dims":
        allowed = welcome.get("head_dims")
        if isinstance(allowed, list):
            pairs = [(int(qk), int(v)) for qk, v in allowed if qk != v][:1]
        else:
            step, most = (8, 64) if allowed is None else (allowed.get("multiple_of", 1), allowed["max"])
            pairs = [(d_qk, other) for other in (d_v + step, d_v - step) if 0 < other <= most][:1]
        for qk, v in pairs:
            yield Trial("feature", f"{feature} {qk}, {v}", base.with_attributes(d_qk=qk, d_v=v), declared)
    elif feature == "fp8_kv":
        storage = next((name for name in ("bf16", "f16", "f32") if name in welcome.get("formats", FORMATS)), None)
        if storage is None:
            yield Trial("feature", feature, None, declared, "no format without an f32 output is declared")
            return
        for kv in ("e4m3", "e5m2"):
            problem = replace(base, storage=storage, kv=kv).with_attributes(out_dtype=storage)
            yield Trial("feature", f"{feature} {kv}", problem, declared)
    else:
        yield Trial("feature", feature, None, declared, "not tried here")
