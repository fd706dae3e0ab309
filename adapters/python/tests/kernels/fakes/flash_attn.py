"""FlashAttention 2.8.3, recorded: signatures of flash_attn/flash_attn_interface.py, checks of csrc/flash_attn/flash_api.cpp."""

import torch
from exact import attention, gather, int32, longest, sixteen, whole

__version__ = "2.8.3+fake"


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None,
):  # fmt: skip
    sixteen(q, k, v)
    assert dropout_p == 0.0 and block_table is None and alibi_slopes is None and not deterministic and softmax_scale is not None
    assert q.dim() == k.dim() == v.dim() == 3 and k.shape == v.shape and q.shape[2] == k.shape[2] <= 256
    batch = cu_seqlens_q.numel() - 1
    rows, keys = int32(cu_seqlens_q, batch + 1), int32(cu_seqlens_k, batch + 1)
    assert rows[-1] == len(q) and keys[-1] == len(k)
    assert (max_seqlen_q, max_seqlen_k) == (longest(rows), longest(keys))
    o, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    for a, b, c, d in zip(rows, rows[1:], keys, keys[1:]):
        left, right = window_size
        o[a:b], part = attention(q[a:b], k[c:d], v[c:d], softmax_scale, causal, whole(left), whole(right), softcap)
        lse[:, a:b] = part.T.masked_fill(part.T == -torch.inf, torch.inf)
    return (o, lse, torch.empty(0)) if return_attn_probs else o


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
    cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False,
):  # fmt: skip
    sixteen(q, k_cache, v_cache)
    assert k is v is rotary_cos is rotary_sin is cache_leftpad is alibi_slopes is None and softmax_scale is not None
    assert q.dim() == k_cache.dim() == v_cache.dim() == 4 and k_cache.shape == v_cache.shape and 0 <= num_splits <= 128
    batch = q.shape[0]
    lengths = int32(cache_seqlens, batch)
    if block_table is not None:
        assert cache_batch_idx is None, "Paged KVcache does not support cache_batch_idx"
        assert k_cache.shape[1] % 256 == 0, "Paged KV cache block size must be divisible by 256"
        tables = int32(block_table, batch, -1)
    else:
        tables = [[row] for row in int32(cache_batch_idx, batch)]
    o, lse = torch.empty_like(q), torch.empty(batch, q.shape[2], q.shape[1])
    for b in range(batch):
        keys, values = (gather(cache, tables[b], lengths[b]) for cache in (k_cache, v_cache))
        left, right = window_size
        o[b], part = attention(q[b], keys, values, softmax_scale, causal, whole(left), whole(right), softcap)
        lse[b] = part.T.masked_fill(part.T == -torch.inf, torch.inf)
    return (o, lse) if return_softmax_lse else o
