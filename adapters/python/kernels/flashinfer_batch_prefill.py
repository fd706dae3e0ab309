"""FlashInfer's batch prefill wrappers: ragged keys for training's forward, paged keys for serving.

Not run. Written against flashinfer-ai/flashinfer flashinfer/prefill.py at 002920b. lse is in base 2. A wrapper keeps the
backend that `auto` chose at its first plan, so there is one for each layout and backend.
"""

import functools
import os

import flashinfer
import torch

import lastbit

DEVICE = os.environ.get("LASTBIT_DEVICE", "cuda")
# Weights are not divided before the product with V, for which they are rounded to the storage format; splits are merged in f32.
NUMERICS = "fa2,softmax.traverse=forward,grid.split=fixed_count(128)"

kernel = lastbit.Kernel(
    "flashinfer-batch-prefill", version=flashinfer.__version__, device=DEVICE, arrays="torch", libraries=["flashinfer"], lse=True,
    forms=["varlen", "paged"], formats=["bf16", "f16"], head_dims=[64, 128, 256], empty_rows=False, empty_sequences=False,
    features=["causal", "window", "softcap", "grouped_heads"], conventions={"lse_base": "2"},
    numerics={"bf16": NUMERICS, "f16": f"{NUMERICS},probs.dtype=f16"}, compiles=True,
    knobs={"backend": ["auto", "fa2", "fa3"], "layout": ["NHD", "HND"], "split_kv": ["auto", "disabled", "4_pages"]},
)  # fmt: skip


@functools.cache
def wrapper(kind, layout, backend):
    workspace = torch.zeros(128 * 1024 * 1024, dtype=torch.uint8, device=DEVICE)
    return getattr(flashinfer, kind)(workspace, layout, backend=backend)


def plan(call):
    """What both plans take beyond lengths and heads."""
    split = call.knobs["split_kv"]
    return {
        "causal": True,
        "window_left": -1 if call.window_left is None else call.window_left,
        "logits_soft_cap": call.softcap,
        "sm_scale": call.softmax_scale,
        "q_data_type": call.q.dtype,
        "kv_data_type": call.q.dtype,
        "disable_split_kv": split == "disabled",
        "fixed_split_size": 4 if split == "4_pages" else None,
    }


@kernel.varlen
def ragged(call):
    # Ragged keys are NHD in the backends for 16-bit formats.
    run = wrapper("BatchPrefillWithRaggedKVCacheWrapper", "NHD", call.knobs["backend"])
    run.plan(call.cu_seqlens_q, call.cu_seqlens_k, call.q_heads, call.kv_heads, call.d_qk, **plan(call))
    return run.run(call.q, call.k, call.v, return_lse=True)


@kernel.paged
def paged(call):
    size, layout = call.page_size, call.knobs["layout"]
    used = [table[: -(-keys // size)] for table, keys in zip(call.pages_of, call.kv_lens)]
    ints = functools.partial(torch.tensor, dtype=torch.int32, device=DEVICE)
    indptr = ints([0, *(len(pages) for pages in used)]).cumsum(0, dtype=torch.int32)
    last = ints([(keys - 1) % size + 1 if keys else 0 for keys in call.kv_lens])
    run = wrapper("BatchPrefillWithPagedKVCacheWrapper", layout, call.knobs["backend"])
    indices = ints([page for pages in used for page in pages])
    run.plan(call.cu_seqlens_q, indptr, indices, last, call.q_heads, call.kv_heads, call.d_qk, size, **plan(call))
    caches = (call.k_cache, call.v_cache)
    return run.run(call.q, tuple(x.transpose(1, 2).contiguous() for x in caches) if layout == "HND" else caches, return_lse=True)


if __name__ == "__main__":
    kernel.run()
