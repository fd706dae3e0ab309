"""vLLM's attention over paged caches: its FlashAttention (LASTBIT_FA=2 or 3), or with LASTBIT_VLLM=triton its Triton kernel.

Not run. Written against vllm-project/vllm: vllm/vllm_flash_attn/flash_attn_interface.py at 01420e0,
vllm/v1/attention/ops/triton_unified_attention.py at 0013943. The Triton kernel has no lse and is causal only; `segments` is its
split of decoding steps (the "3D" kernel).
"""

import os

import torch
import vllm

import lastbit

DEVICE = os.environ.get("LASTBIT_DEVICE", "cuda")
FA, TRITON = int(os.environ.get("LASTBIT_FA", "2")), os.environ.get("LASTBIT_VLLM") == "triton"
if TRITON:
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention
else:
    from vllm.vllm_flash_attn.flash_attn_interface import flash_attn_varlen_func
NUMERICS = f"{'aligned' if TRITON else f'fa{FA}'},score.scale=folded_log2e,grid.split=fixed_count(128)"
SPLITS = {"segments": ["none", "16"]} if TRITON else {"num_splits": ["1", "0", "4"] if FA == 3 else ["0", "1"]}

kernel = lastbit.Kernel(
    "vllm-triton" if TRITON else f"vllm-flash-attention-{FA}", version=vllm.__version__, device=DEVICE, arrays="torch",
    libraries=["vllm"], lse=not TRITON, forms=["paged"] if TRITON else ["varlen", "paged"], formats=["bf16", "f16"],
    head_dims=[64, 128, 256], page_sizes=[16, 32, 64, 128], empty_rows=not TRITON, knobs=SPLITS,
    features=["causal", "window", "softcap", "grouped_heads"] + (["sinks"] if TRITON else ["not_causal"]),
    conventions={} if TRITON or FA == 3 else {"empty_row": "zero_pos_inf"},
    numerics={"bf16": f"{NUMERICS},probs.dtype=bf16", "f16": f"{NUMERICS},probs.dtype=f16"}, compiles=TRITON,
)  # fmt: skip


def arguments(call):
    return {
        "cu_seqlens_q": call.cu_seqlens_q, "max_seqlen_q": call.max_seqlen_q, "max_seqlen_k": call.max_seqlen_k,
        "softmax_scale": call.softmax_scale, "causal": call.causal is not None, "softcap": call.softcap or 0.0,
        "window_size": [-1 if side is None else side for side in (call.window_left, call.window_right)],
    }  # fmt: skip


def flash(call, k, v, **keys):
    more = {"num_splits": int(call.knobs["num_splits"]), "fa_version": FA, "return_softmax_lse": True}
    o, lse = flash_attn_varlen_func(call.q, k, v, **arguments(call), **keys, **more)
    return o, lse.T  # lse is [q_heads, total_q]


def varlen(call):
    return flash(call, call.k, call.v, cu_seqlens_k=call.cu_seqlens_k)


@kernel.paged
def paged(call):
    if not TRITON:
        return flash(call, call.k_cache, call.v_cache, seqused_k=call.cache_seqlens, block_table=call.block_table)
    o, split = torch.empty_like(call.q), {}
    if call.knobs["segments"] != "none":
        shape = (call.batch, call.q_heads, int(call.knobs["segments"]))
        maxima, sums, parts = (call.q.new_empty(*shape, *d, dtype=torch.float32) for d in [(), (), (call.d_v,)])
        split = {"seq_threshold_3D": call.batch, "num_par_softmax_segments": shape[2], "softmax_segm_output": parts}
        split |= {"softmax_segm_max": maxima, "softmax_segm_expsum": sums}
    scales = dict.fromkeys(["q_descale", "k_descale", "v_descale"])
    unified_attention(
        call.q, call.k_cache, call.v_cache, o, seqused_k=call.cache_seqlens, block_table=call.block_table, sinks=call.sinks,
        **arguments(call), **scales, **split,
    )  # fmt: skip
    return o


if not TRITON:
    kernel.varlen(varlen)
if __name__ == "__main__":
    kernel.run()
