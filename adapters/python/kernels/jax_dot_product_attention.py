"""jax.nn.dot_product_attention over padded batches and a contiguous KV cache.

Where arguments of the call can say the mask, they do (is_causal is top-left; key_value_seq_lengths counts from the left); else a
boolean mask does. A row without keys gets the mean of all values, not zero, so such rows are declared as not supported. XLA takes
its number of threads from XLA_FLAGS when it starts, so that is in the identity and no knob.
"""

import os

import jax
import numpy as np

import lastbit

BACKEND = jax.default_backend()
kernel = lastbit.Kernel(
    "jax-dot-product-attention", version=jax.__version__, device={"gpu": "cuda"}.get(BACKEND, BACKEND), arrays="numpy",
    libraries=["jax", "jaxlib"], lse=False, empty_rows=False, compiles=True,
    details={"device_kind": jax.devices()[0].device_kind, "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")},
    forms=["dense_left", "dense_right", "contiguous"],
    formats=["f32", "bf16"] + (["f16"] if BACKEND == "gpu" else []),  # XLA has no f16 product with f32 sums on CPUs.
    features=["causal", "causal_top_left", "not_causal", "window", "grouped_heads"],
    # Weights are divided by their sum and then rounded to the format of the keys.
    numerics={"*": "naive", "bf16": "naive,probs.dtype=bf16", "f16": "naive,probs.dtype=f16"},
    knobs={"cache": ["dynamic", "static"]} | ({"implementation": ["xla", "cudnn"]} if BACKEND == "gpu" else {}),
)  # fmt: skip
attention = jax.jit(jax.nn.dot_product_attention, static_argnames=("scale", "is_causal", "local_window_size", "implementation"))


def attend(call, q, k, v, mask, left=False):
    """q [batch, rows, q_heads, d], k and v [batch, keys, kv_heads, d], mask [batch, rows, keys]: o [batch, rows, q_heads, d]."""
    if 0 in mask.shape:
        return np.zeros_like(q)
    # Masked values are multiplied by zero, so dead slots must be finite: engines zero their caches.
    k, v = (np.where(mask.any(1)[:, :, None, None], x, np.zeros((), x.dtype)) for x in (k, v))
    window = (call.window_left, call.window_right)
    same_positions = call.causal == "top_left" or call.q_lens == call.kv_lens
    every_key = window == (None, None) and (call.causal is None or call.causal == "bottom_right" and call.max_seqlen_q == 1)
    if left or not (same_positions or every_key):
        arguments = {"mask": mask[:, None]}
    else:
        is_causal = call.causal is not None and not every_key
        arguments = {"key_value_seq_lengths": np.array(call.kv_lens, np.int32), "is_causal": is_causal}
        if window != (None, None):
            arguments["local_window_size"] = tuple(max(mask.shape) if side is None else side for side in window)
    implementation = call.knobs.get("implementation", "xla")
    return np.asarray(attention(q, k, v, scale=call.softmax_scale, implementation=implementation, **arguments))


@kernel.dense
def dense(call):
    return attend(call, call.q, call.k, call.v, call.padded_mask(), call.padding == "left")


@kernel.paged
def contiguous(call):
    keys = call.page_size if call.knobs["cache"] == "static" else call.max_seqlen_k
    q = np.zeros((call.batch, call.max_seqlen_q, *call.q.shape[1:]), call.q.dtype)
    mask = np.zeros((*q.shape[:2], keys), bool)
    for b, (rows, n, m) in enumerate(zip(np.split(call.q, call.cu_seqlens_q[1:-1]), call.q_lens, call.kv_lens)):
        q[b, :n], mask[b, :n, :m] = rows, call.mask(n, m)
    o = attend(call, q, call.k_cache[call.row_of, :keys], call.v_cache[call.row_of, :keys], mask)
    return call.assemble([o[b, :n] for b, n in enumerate(call.q_lens)])


if __name__ == "__main__":
    kernel.run()
