"""Textbook attention in numpy: whole rows at once, softmax(q k^T * scale + bias) v in f32, rounded once at the end.

lastbit-check kernels/numpy_textbook.py
"""

import numpy as np

import lastbit

kernel = lastbit.Kernel(
    "numpy-textbook",
    version=np.__version__,
    formats=["f32", "f16", "bf16"],
    features=[
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
    ],
    numerics={"*": "naive"},
)


@kernel.sequence
def attention(call):
    q = call.q.transpose(1, 0, 2)  # [q_heads, rows, d_qk]
    k = np.repeat(call.k, call.gqa, axis=1).transpose(1, 2, 0)  # [q_heads, d_qk, keys]
    v = np.repeat(call.v, call.gqa, axis=1).transpose(1, 0, 2)  # [q_heads, keys, d_v]
    s = (q @ k) * np.float32(call.softmax_scale)  # [q_heads, rows, keys]
    if call.softcap is not None:
        cap = np.float32(call.softcap)
        s = cap * np.tanh(s / cap)
    if call.alibi_slopes is not None:
        # Row i stands at position i under a top-left mask, else at i + keys - rows.
        first = 0 if call.causal == "top_left" else call.keys - call.rows
        distance = np.abs(np.arange(call.rows)[:, None] + first - np.arange(call.keys))
        s -= call.alibi_slopes[:, None, None] * distance.astype(np.float32)
    s = np.where(call.mask(), s, np.float32(-np.inf))
    m = s.max(axis=-1, keepdims=True, initial=-np.inf)
    if call.sinks is not None:
        m = np.maximum(m, call.sinks[:, None, None])
    m = np.where(np.isneginf(m), np.float32(0), m)  # a row that sees nothing
    p = np.exp(s - m)
    l = p.sum(axis=-1, keepdims=True)
    if call.sinks is not None:
        l += np.exp(call.sinks[:, None, None] - m)
    with np.errstate(divide="ignore"):
        lse = (np.log(l) + m)[..., 0]
    o = (p / np.where(l == 0, np.float32(1), l)) @ v
    return o.transpose(1, 0, 2), lse.T


if __name__ == "__main__":
    kernel.run()
