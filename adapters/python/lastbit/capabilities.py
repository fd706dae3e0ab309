"""What a kernel may declare, checked when it is declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

FORMS = ("varlen", "dense_left", "dense_right", "paged", "contiguous")
FEATURES = (
    "causal",
    "causal_top_left",
    "not_causal",
    "window",
    "softcap",
    "sinks",
    "alibi",
    "grouped_heads",
    "unequal_head_dims",
    "fp8_kv",
    "context_parallel",
)
FORMATS = ("f32", "f16", "bf16")
CONVENTIONS = {
    "anchor": ("as_called", "bottom_right", "top_left", "strict"),
    "window": ("keys_to_left", "counts_self", "one_more"),
    "empty_row": ("zero_neg_inf", "zero_pos_inf", "nan"),
    "lse_base": ("e", "2"),
    "sink_in_lse": ("yes", "no"),
    "alibi": ("distance", "key_index"),
    "cap_order": ("cap_then_bias", "bias_then_cap"),
    "kv_scales": ("applied", "ignored"),
}


def one_of(what: str, value: str, allowed: Iterable[str]) -> str:
    """The value, if it is allowed.

    Raises ``ValueError`` that names the nearest, or all.
    """
    allowed = list(allowed)
    if value in allowed:
        return value
    near = get_close_matches(value, allowed, 1)
    raise ValueError(f"{what} {value!r}: " + (f"did you mean {near[0]!r}?" if near else f"one of {', '.join(allowed)}"))


def _list(what: str, values: Sequence[Any]) -> None:
    """Refuses what is no list, and a list that would leave nothing to ask for."""
    if isinstance(values, str):
        raise ValueError(f"{what}s are the text {values!r}; give a list")
    if len(values) == 0:
        raise ValueError(f"the list of {what}s is empty; leave it out if all are fine")


def names(what: str, values: Sequence[str] | None, allowed: Sequence[str]) -> list[str] | None:
    """A list of names, in canonical order without repetition; ``None`` stays ``None``."""
    if values is None:
        return None
    _list(what, values)
    wanted = {one_of(what, value, allowed) for value in values}
    return [name for name in allowed if name in wanted]


def formats(values: Sequence[str] | None) -> list[str] | None:
    """Formats such as ``bf16`` or ``bf16->f32``."""
    if values is None:
        return None
    _list("format", values)
    for value in values:
        for part in value.split("->", 1):
            one_of("format", part, FORMATS)
    return list(dict.fromkeys(values))


def head_dims(value: Any) -> Any:
    """``None``; ``{"max": n, "multiple_of": m}``; or a list of head dims, or of pairs of ``d_qk`` and ``d_v``."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        for key in value:
            one_of("head_dims", str(key), ("max", "multiple_of"))
        if "max" not in value:
            raise ValueError("head_dims needs a max")
        return {"max": int(value["max"]), "multiple_of": int(value.get("multiple_of", 1))}
    _list("head dim", value)
    return [[int(it), int(it)] if isinstance(it, int) else [int(it[0]), int(it[1])] for it in value]


def page_sizes(value: Sequence[int] | None) -> list[int] | None:
    """Slots in a page, each once."""
    if value is None:
        return None
    _list("page size", value)
    return list(dict.fromkeys(int(size) for size in value))


def knobs(value: Mapping[str, Sequence[Any]] | None) -> dict[str, list[str]]:
    """Names and values, the default first."""
    checked: dict[str, list[str]] = {}
    for name, values in (value or {}).items():
        texts = [str(it) for it in values] if not isinstance(values, str) else []
        if (
            not texts
            or len(set(texts)) < len(texts)
            or any("\n" in text for text in texts)
            or not name.replace("_", "a").isalnum()
        ):
            raise ValueError(
                f"knob {name!r}: a name of letters, digits and _, and a list of values, each of one line and there once"
            )
        checked[name] = texts
    return checked


def conventions(value: Mapping[str, str] | None) -> dict[str, str]:
    """Fields that are off their usual value."""
    return {
        one_of("convention", field, CONVENTIONS): one_of(f"convention {field}", str(text), CONVENTIONS[field])
        for field, text in (value or {}).items()
    }
