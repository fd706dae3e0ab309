"""Every adapter against float64: all its forms, formats, features and knobs, within the bound of the numerics that it declares.

Those in `RECORDED` run against fakes of their libraries, which check each argument as documented.
"""

import math

import numpy as np
import pytest
from adapters import RECORDED, RUN
from bound import bounds
from problem import Problem

MIXED = [(5, 5), (33, 33), (1, 70), (16, 48)]
PROBLEMS = {
    "chunks": ({"causal"}, {"sequences": MIXED}),
    "prompts": ({"causal"}, {"sequences": [(5, 5), (40, 40), (1, 1)]}),
    "decode": ({"causal"}, {"sequences": [(1, 133), (1, 3)]}),
    "multi_query": ({"causal"}, {"sequences": MIXED, "kv_heads": 1}),
    "no_groups": ({"causal"}, {"sequences": MIXED, "kv_heads": 4}),
    "not_causal": ({"not_causal"}, {"sequences": MIXED, "causal": None}),
    "top_left": ({"causal_top_left"}, {"sequences": MIXED, "causal": "top_left"}),
    "window": ({"causal", "window"}, {"sequences": MIXED, "window_left": 7}),
    "window_prompts": ({"causal", "window"}, {"sequences": [(5, 5), (40, 40)], "window_left": 0}),
    "two_windows": ({"not_causal", "window"}, {"sequences": MIXED, "causal": None, "window_left": 3, "window_right": 2}),
    "softcap": ({"causal", "softcap"}, {"sequences": MIXED, "softcap": 2.0}),
    "sinks": ({"causal", "sinks"}, {"sequences": MIXED, "sinks": True}),
    "unequal_head_dims": ({"causal", "unequal_head_dims"}, {"sequences": MIXED, "d_v": 16}),
    "empty_rows": ({"causal", "empty_rows"}, {"sequences": [(9, 4), (1, 0), (5, 5)]}),
    "empty_window": ({"causal", "window", "empty_rows"}, {"sequences": [(3, 9), (9, 4)], "window_left": 1}),
    "empty_sequences": ({"causal", "empty_rows", "empty_sequences"}, {"sequences": [(0, 5), (7, 7), (3, 0), (0, 0)]}),
    "nothing": ({"causal", "empty_rows", "empty_sequences"}, {"sequences": [(3, 0)]}),
}


@pytest.fixture(scope="module", params=RUN + RECORDED, ids=lambda adapter: adapter.name)
def kernel(request):
    adapter = request.param
    if reason := adapter.missing():
        pytest.skip(f"{adapter.name} ({adapter.file}): {reason}")
    with adapter.start() as process:
        process.adapter = adapter
        yield process


def forms(welcome):
    """Call forms; the paged one with the smallest and the largest page."""
    for form in welcome["forms"]:
        if form == "paged":
            sizes = welcome.get("page_sizes") or [1, 16]
            yield from (f"paged_{size}" for size in sorted({min(sizes), max(sizes)}))
        else:
            yield form


def head_dim(welcome):
    dims = welcome.get("head_dims")
    return dims[0][0] if isinstance(dims, list) else 32


def check(kernel, form, problem, where):
    welcome = kernel.welcome
    conventions = {"empty_row": "zero_neg_inf", "lse_base": "e"} | welcome.get("conventions", {})
    got_o, got_lse = problem.run(kernel, form)
    assert (got_lse is not None) == welcome["lse"]
    for index in range(len(problem.sequences)):
        o, lse = problem.truth(index)
        o_bound, lse_bound = bounds(problem, index, welcome["numerics"])
        error = np.abs(got_o[index].astype(np.float64) - o)
        assert (error <= o_bound).all(), f"{where}: {problem.sequences[index]} has {np.max(error / o_bound)} of the bound"
        if got_lse is not None:
            got = got_lse[index] * (math.log(2) if conventions["lse_base"] == "2" else 1)
            empty = np.isneginf(lse)
            nothing = {"zero_neg_inf": -np.inf, "zero_pos_inf": np.inf}[conventions["empty_row"]]
            assert (got[empty] == nothing).all(), f"{where}: lse of empty rows is {got[empty]}"
            assert (np.abs(got[~empty] - lse[~empty]) <= lse_bound[~empty]).all(), f"{where}: lse of {problem.sequences[index]}"


def attempt(kernel, form, name, **changes):
    """Checks a problem if the kernel declares all that it asks for. Whether it does."""
    needs, fields = PROBLEMS[name]
    welcome, dim = kernel.welcome, head_dim(kernel.welcome)
    able = {*welcome["features"], *(flag for flag in ("empty_rows", "empty_sequences") if welcome[flag])}
    if not needs <= able:
        return False
    problem = Problem(**{"format": welcome["formats"][0], "d_qk": dim, "d_v": dim} | fields | changes)
    check(kernel, form, problem, f"{name}, {form}, {changes}")
    return True


def test_identity_names_version_and_device(kernel):
    identity = kernel.welcome["identity"]
    assert identity["version"] and identity["device"] == "cpu" and identity["digest"]


def test_problems(kernel):
    tried = set()
    for form in forms(kernel.welcome):
        for name, (needs, _) in PROBLEMS.items():
            if attempt(kernel, form, name):
                tried |= needs
    assert {*kernel.welcome["features"]} - {"grouped_heads", "alibi", "fp8_kv"} <= tried


def test_formats(kernel):
    for form in forms(kernel.welcome):
        for format in kernel.welcome["formats"]:
            for name in ("chunks", "decode", "empty_rows"):
                attempt(kernel, form, name, format=format, seed=1)


def test_scales_that_are_no_power_of_two(kernel):
    for form in forms(kernel.welcome):
        for format in kernel.welcome["formats"]:
            attempt(kernel, form, "prompts", format=format, softmax_scale=float(np.float32(0.9)), seed=2)


def test_knobs(kernel):
    for knob, values in kernel.welcome.get("knobs", {}).items():
        for value in values:
            for form in forms(kernel.welcome):
                attempt(kernel, form, "chunks", knobs={knob: value}, seed=3)
