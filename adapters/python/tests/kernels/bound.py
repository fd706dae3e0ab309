"""How far a result may lie from the true value, given what a kernel declares: the roundings of src/subject/attention/accuracy,
counted more simply. It knows f32 with any order of sums, and the formats of scores and weights."""

import numpy as np

UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
TINY = {"f32": 2.0**-150, "f16": 2.0**-25, "bf16": 2.0**-134}
OPERATIONS = 10
"""Roundings of f32 beyond those of sums: scale, exponent, rescale, division, conversions of lse."""


def declared(numerics, format):
    """Formats of the score's product, of scores and of weights from the words of `numerics` for a storage format."""
    words = numerics.get(format, numerics.get("*", "aligned"))
    formats = {"score.acc": "f32", "score.store": "f32", "probs.dtype": "bf16" if words.startswith("fa") else "f32"}
    for field in words.split(",")[1:]:
        name, _, value = field.partition("=")
        if name in formats:
            formats[name] = value
    return formats


def bounds(problem, index, numerics):
    """Of `o` [rows, q_heads, d_v] and of `lse` [rows, q_heads] of one sequence."""
    formats = declared(numerics, problem.format)
    q, k, v = (x[index].astype(np.float64) for x in (problem.q, problem.k, problem.v))
    rows, keys = problem.sequences[index]
    group = problem.q_heads // problem.kv_heads
    k, v = np.abs(np.repeat(k, group, 1)), np.abs(np.repeat(v, group, 1))
    size = np.einsum("ihd,jhd->hij", np.abs(q), k) * problem.softmax_scale
    scores = problem.scores(index)
    o, lse = problem.truth(index)
    lse, o = lse.T[..., None], np.abs(o.transpose(1, 0, 2))
    finite = np.where(np.isfinite(lse), lse, 0)
    weights = np.exp(scores - finite)
    away = np.where(np.isfinite(scores), np.abs(scores) + np.abs(finite) + np.log(keys + 1), 0)
    u = UNIT["f32"]
    exponent = (problem.d_qk + OPERATIONS) * u * size + OPERATIONS * u * (away + 1)
    if formats["score.acc"] != "f32":
        exponent += (problem.d_qk + 2) * UNIT[formats["score.acc"]] * size
    if formats["score.store"] != "f32":
        exponent += UNIT[formats["score.store"]] * size + TINY[formats["score.store"]]
    error = np.expm1(exponent)
    probs, sums = UNIT[formats["probs.dtype"]], (keys + OPERATIONS) * u
    numerator = np.einsum("hij,jhd->hid", weights * (error + probs + sums) * (1 + error), v)
    numerator += TINY[formats["probs.dtype"]] * v.sum(0)[:, None, :]
    denominator = (weights * error).sum(2, keepdims=True) + sums
    quotient = (numerator + o * denominator) / np.maximum(1 - denominator, 0.5)
    stored = (o + quotient) * UNIT[problem.format] + TINY[problem.format]
    logarithm = 2 * denominator + OPERATIONS * u * (np.abs(finite) + np.log(keys + 1) + 1)
    return (quotient + stored).transpose(1, 0, 2), logarithm[..., 0].T
