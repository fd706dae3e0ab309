"""FlashAttention 3, recorded: signatures of hopper/flash_attn_interface.py at 01afd16."""

import torch
from exact import attention, gather, int32, longest, sixteen, whole


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, seqused_k=None, softmax_scale=None,
    causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0,
    num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False,
):  # fmt: skip
    sixteen(q, k, v)
    assert seqused_q is seqused_k is qv is q_descale is k_descale is v_descale is None and attention_chunk == sm_margin == 0
    assert pack_gqa in (None, True, False) and num_splits == 1 and q.dim() == k.dim() == v.dim() == 3
    batch = cu_seqlens_q.numel() - 1
    rows, keys = int32(cu_seqlens_q, batch + 1), int32(cu_seqlens_k, batch + 1)
    assert (max_seqlen_q, max_seqlen_k) == (longest(rows), longest(keys))
    o, lse = torch.empty(*q.shape[:2], v.shape[2], dtype=q.dtype), torch.empty(q.shape[1], q.shape[0])
    for a, b, c, d in zip(rows, rows[1:], keys, keys[1:]):
        left, right = window_size
        o[a:b], part = attention(q[a:b], k[c:d], v[c:d], softmax_scale, causal, whole(left), whole(right), softcap)
        lse[:, a:b] = part.T
    return (o, lse) if return_attn_probs else o


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
    cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None,
    q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False, window_size=(-1, -1), attention_chunk=0,
    softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0,
    return_softmax_lse=False,
):  # fmt: skip
    sixteen(q, k_cache, v_cache)
    assert k is v is qv is rotary_cos is rotary_sin is cache_leftpad is None
    assert cu_seqlens_k_new is rotary_seqlens is scheduler_metadata is None
    assert q_descale is k_descale is v_descale is None and attention_chunk == sm_margin == 0 and pack_gqa in (None, True, False)
    assert q.dim() == 3 and k_cache.dim() == v_cache.dim() == 4 and 0 <= num_splits <= 128
    batch = cu_seqlens_q.numel() - 1
    rows, lengths = int32(cu_seqlens_q, batch + 1), int32(cache_seqlens, batch)
    assert max_seqlen_q == longest(rows)
    assert (page_table is None) != (cache_batch_idx is None)
    tables = [[row] for row in int32(cache_batch_idx, batch)] if page_table is None else int32(page_table, batch, -1)
    o, lse = torch.empty(*q.shape[:2], v_cache.shape[3], dtype=q.dtype), torch.empty(q.shape[1], q.shape[0])
    for b, (start, end) in enumerate(zip(rows, rows[1:])):
        keys, values = (gather(cache, tables[b], lengths[b]) for cache in (k_cache, v_cache))
        left, right = window_size
        o[start:end], part = attention(q[start:end], keys, values, softmax_scale, causal, whole(left), whole(right), softcap)
        lse[:, start:end] = part.T
    return (o, lse, None, None) if return_softmax_lse else o
