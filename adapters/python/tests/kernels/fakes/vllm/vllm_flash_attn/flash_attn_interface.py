"""Recorded: vllm/vllm_flash_attn/flash_attn_interface.py at 01420e0."""

import torch
from exact import attention, gather, int32, longest, sixteen, whole


def flash_attn_varlen_func(
    q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None, q_v=None, dropout_p=0.0,
    softmax_scale=None, causal=False, window_size=None, softcap=0.0, alibi_slopes=None, deterministic=False,
    return_attn_probs=False, block_table=None, return_softmax_lse=False, out=None, scheduler_metadata=None, q_descale=None,
    k_descale=None, v_descale=None, num_splits=0, output_scale=None, fa_version=2, s_aux=None, cp_world_size=1, cp_rank=0,
    cp_tot_seqused_k=None, mask_mod=None, block_sparse_tensors=None, aux_tensors=None, aux_tensor_leading_dims=None,
    dynamic_causal=None,
):  # fmt: skip
    sixteen(q, k, v)
    assert (cu_seqlens_k is None) != (seqused_k is None) and (block_table is None or seqused_k is not None)
    assert fa_version in (2, 3) and not (fa_version == 2 and num_splits > 1), "FA2 does not support num_splits > 1"
    assert window_size is None or (isinstance(window_size, list) and len(window_size) == 2)
    batch = cu_seqlens_q.numel() - 1
    rows = int32(cu_seqlens_q, batch + 1)
    assert max_seqlen_q == longest(rows)
    if block_table is None:
        keys = int32(cu_seqlens_k, batch + 1)
        sequences = [(k[a:b], v[a:b]) for a, b in zip(keys, keys[1:])]
    else:
        assert k.dim() == 4 and k.shape[1] % 16 == 0
        tables = zip(int32(block_table, batch, -1), int32(seqused_k, batch))
        sequences = [(gather(k, *at), gather(v, *at)) for at in tables]
    assert max_seqlen_k == max(len(keys) for keys, _ in sequences)
    o, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    for (a, b), (keys, values) in zip(zip(rows, rows[1:]), sequences):
        left, right = window_size or (-1, -1)
        o[a:b], part = attention(q[a:b], keys, values, softmax_scale, causal, whole(left), whole(right), softcap)
        lse[:, a:b] = part.T.masked_fill(part.T == -torch.inf, torch.inf) if fa_version == 2 else part.T
    return (o, lse) if return_softmax_lse else o
