"""FlashAttention 2 (package `flash_attn`), or with LASTBIT_FA=3 FlashAttention 3 (`flash_attn_interface`, built from `hopper/`).

Not run. Written against Dao-AILab/flash-attention 2.8.3: flash_attn/flash_attn_interface.py at 0053002,
hopper/flash_attn_interface.py at 01afd16. ALiBi is left out: under a causal mask FlashAttention 2 adds slope * key instead, which
shifts lse.
"""

import importlib
import os

import lastbit

FA3 = os.environ.get("LASTBIT_FA", "2") == "3"
MODULE = "flash_attn_interface" if FA3 else "flash_attn"
library = importlib.import_module(MODULE)
# num_splits=0 lets the library's heuristic choose, up to 128.
NUMERICS = f"{'fa3' if FA3 else 'fa2'},grid.split=fixed_count(128)"
PACK_GQA = {"auto": None, "no": False, "yes": True}

kernel = lastbit.Kernel(
    "flash-attention-3" if FA3 else "flash-attention-2", version=getattr(library, "__version__", "3"),
    device=os.environ.get("LASTBIT_DEVICE", "cuda"), arrays="torch", libraries=[MODULE], lse=True,
    forms=["varlen", "paged", "contiguous"], formats=["bf16", "f16"], head_dims={"max": 256, "multiple_of": 8},
    features=["causal", "not_causal", "window", "softcap", "grouped_heads"], page_sizes=None if FA3 else [256, 512],
    knobs={"num_splits": ["1", "0", "2", "4"]} | ({"pack_gqa": list(PACK_GQA)} if FA3 else {}),
    conventions={} if FA3 else {"empty_row": "zero_pos_inf"},
    numerics={"bf16": NUMERICS, "f16": f"{NUMERICS},probs.dtype=f16"},
)  # fmt: skip


def arguments(call):
    """What both entry points take."""
    common = {
        "softmax_scale": call.softmax_scale,
        "causal": call.causal is not None,
        "window_size": tuple(-1 if side is None else side for side in (call.window_left, call.window_right)),
        "softcap": call.softcap or 0.0,
    }
    return common | ({"pack_gqa": PACK_GQA[call.knobs["pack_gqa"]]} if FA3 else {})


@kernel.varlen
def training(call):
    cu_seqlens = (call.cu_seqlens_q, call.cu_seqlens_k, call.max_seqlen_q, call.max_seqlen_k)
    o, lse, *_ = library.flash_attn_varlen_func(call.q, call.k, call.v, *cu_seqlens, **arguments(call), return_attn_probs=True)
    return o, lse.T  # lse is [q_heads, total_q]


@kernel.paged
def inference(call):
    cache = {"cache_seqlens": call.cache_seqlens, "cache_batch_idx": call.cache_rows, "num_splits": int(call.knobs["num_splits"])}
    cache |= arguments(call) | {"return_softmax_lse": True}
    if FA3:
        packed = {"page_table": call.block_table, "cu_seqlens_q": call.cu_seqlens_q, "max_seqlen_q": call.max_seqlen_q}
        o, lse, *_ = library.flash_attn_with_kvcache(call.q, call.k_cache, call.v_cache, **cache, **packed)
        return o, lse.T
    # FlashAttention 2 takes [batch, rows]: padding on the left keeps the last row of each sequence at its last key.
    q = call.q.new_zeros(call.batch, call.max_seqlen_q, call.q_heads, call.d_qk)
    for padded, rows in zip(q, call.q.split(call.q_lens)):
        padded[len(padded) - len(rows) :] = rows
    o, lse = library.flash_attn_with_kvcache(q, call.k_cache, call.v_cache, **cache, block_table=call.block_table)
    last = [slice(call.max_seqlen_q - rows, None) for rows in call.q_lens]
    return call.assemble([o[b, at] for b, at in enumerate(last)], [lse[b, :, at].T for b, at in enumerate(last)])


if __name__ == "__main__":
    kernel.run()
