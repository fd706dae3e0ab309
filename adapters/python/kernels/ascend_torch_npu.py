"""Ascend's torch_npu: npu_fusion_attention for training, npu_fused_infer_attention_score for serving.

Not run. Written against Ascend/op-plugin docs/context/torch_npu-npu_fusion_attention.md at 0d8f401 and torch_npu-
npu_fused_infer_attention_score.md at 0adf450, and called as vLLM-Ascend does (packed TND queries, paged cache). The layout of the
training operator's softmax maxima depends on the version, so lse is left out.
"""

import os

import torch
import torch_npu

import lastbit

DEVICE = os.environ.get("LASTBIT_DEVICE", "npu")
kernel = lastbit.Kernel(
    "ascend-torch-npu", version=torch_npu.__version__, device=DEVICE, arrays="torch", libraries=["torch_npu"], lse=False,
    forms=["varlen", "paged"], formats=["bf16", "f16"], features=["causal", "not_causal", "window", "grouped_heads"],
    head_dims={"max": 256, "multiple_of": 16}, page_sizes=[128, 256, 512], empty_rows=False, empty_sequences=False,
    # inner_precise=1 is the fast mode of f16; bf16 has one mode.
    knobs={"inner_precise": ["0", "1"]},
    # The matrix unit takes 16-bit weights. What the fast mode stores in f16 is not documented; the declaration allows scores.
    numerics={"bf16": "aligned,probs.dtype=bf16", "f16": "aligned,score.store=f16,probs.dtype=f16"},
)  # fmt: skip

FAR = 2147483647
# The compressed mask of sparse modes 2 to 4: always this size, true where a key does not take part.
MASK = torch.ones(2048, 2048, dtype=torch.bool, device=DEVICE).triu(1)


def mode(call):
    """sparse_mode, atten_mask, and keys to the left and right; modes 3 and 4 are laid to the bottom right."""
    left = FAR if call.window_left is None else call.window_left
    right = 0 if call.causal is not None else FAR if call.window_right is None else call.window_right
    if call.window_left is None and call.window_right is None:
        return (0, None, FAR, FAR) if call.causal is None else (3, MASK, FAR, FAR)
    return 4, MASK, left, right


@kernel.varlen
def training(call):
    sparse_mode, mask, left, right = mode(call)
    return torch_npu.npu_fusion_attention(
        call.q, call.k, call.v, call.q_heads, "TND", atten_mask=mask, scale=call.softmax_scale, sparse_mode=sparse_mode,
        pre_tockens=left, next_tockens=right, actual_seq_qlen=call.cu_seqlens_q[1:].tolist(),
        actual_seq_kvlen=call.cu_seqlens_k[1:].tolist(),
    )[0]  # fmt: skip


@kernel.paged
def serving(call):
    sparse_mode, mask, left, right = mode(call)
    k, v = (cache.flatten(2) for cache in (call.k_cache, call.v_cache))  # [pages, page_size, kv_heads * d]
    return torch_npu.npu_fused_infer_attention_score(
        call.q, k, v, atten_mask=mask, scale=call.softmax_scale, sparse_mode=sparse_mode, pre_tokens=left, next_tokens=right,
        actual_seq_lengths=call.cu_seqlens_q[1:].tolist(), actual_seq_lengths_kv=call.kv_lens, block_table=call.block_table,
        block_size=call.page_size, input_layout="TND", num_heads=call.q_heads, num_key_value_heads=call.kv_heads,
        inner_precise=int(call.knobs["inner_precise"]),
    )[0]  # fmt: skip


if __name__ == "__main__":
    kernel.run()
