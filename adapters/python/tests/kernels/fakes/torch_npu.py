"""torch_npu, recorded: signatures and checks of Ascend/op-plugin's documents at 0d8f401 and 0adf450."""

import torch
from exact import attention, gather, int32, sixteen

__version__ = "fake"
FAR = 2147483647


def _mask(sparse_mode, atten_mask, before, after):
    """causal, left, right: None is without a limit."""
    if sparse_mode == 0:
        assert atten_mask is None
        return False, None, None
    triangle = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    assert atten_mask.dtype == torch.bool and torch.equal(atten_mask, triangle), "the compressed lower triangle, 2048 x 2048"
    if sparse_mode == 3:
        return True, None, None
    assert sparse_mode == 4 and isinstance(before, int) and isinstance(after, int)
    return False, None if before == FAR else before, None if after == FAR else after


def _cumulative(lengths, total):
    assert isinstance(lengths, list) and lengths[-1] == total and lengths == sorted(lengths)
    return [0, *lengths]


def npu_fusion_attention(
    query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, keep_prob=1.0,
    pre_tockens=FAR, next_tockens=FAR, inner_precise=0, prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0,
    gen_mask_parallel=True, sync=False, softmax_layout="",
):  # fmt: skip
    sixteen(query, key, value)
    assert input_layout == "TND" and head_num == query.shape[1] and pse is padding_mask is prefix is None and keep_prob == 1.0
    rows, keys = _cumulative(actual_seq_qlen, len(query)), _cumulative(actual_seq_kvlen, len(key))
    assert len(rows) == len(keys)
    o = torch.empty_like(query)
    for a, b, c, d in zip(rows, rows[1:], keys, keys[1:]):
        limits = _mask(sparse_mode, atten_mask, pre_tockens, next_tockens)
        o[a:b], _ = attention(query[a:b], key[c:d], value[c:d], scale, *limits, None)
    return o, torch.empty(0), torch.empty(0), torch.empty(0), 0, 0, 0


def npu_fused_infer_attention_score(
    query, key, value, *, pse_shift=None, atten_mask=None, actual_seq_lengths=None, actual_seq_lengths_kv=None,
    dequant_scale1=None, quant_scale1=None, dequant_scale2=None, quant_scale2=None, quant_offset2=None, antiquant_scale=None,
    antiquant_offset=None, block_table=None, query_padding_size=None, kv_padding_size=None, key_antiquant_scale=None,
    key_antiquant_offset=None, value_antiquant_scale=None, value_antiquant_offset=None, key_shared_prefix=None,
    value_shared_prefix=None, actual_shared_prefix_len=None, query_rope=None, key_rope=None, key_rope_antiquant_scale=None,
    num_heads=1, scale=1.0, pre_tokens=FAR, next_tokens=FAR, input_layout="BSH", num_key_value_heads=0, sparse_mode=0,
    inner_precise=0, block_size=0, antiquant_mode=0, softmax_lse_flag=False, key_antiquant_mode=0, value_antiquant_mode=0,
):  # fmt: skip
    sixteen(query, key, value)
    assert query.is_contiguous() and key.is_contiguous() and value.is_contiguous() and key.shape == value.shape
    assert input_layout == "TND" and num_heads == query.shape[1] and query.shape[2] % 16 == 0 and inner_precise in (0, 1, 2, 3)
    assert key.dim() == 3 and key.shape[1:] == (block_size, num_key_value_heads * query.shape[2])
    assert 128 <= block_size <= 512 and block_size % 128 == 0
    rows = _cumulative(actual_seq_lengths, len(query))
    assert len(actual_seq_lengths_kv) == len(rows) - 1 and isinstance(actual_seq_lengths_kv, list)
    tables = int32(block_table, len(rows) - 1, -1)
    keys, values = (cache.unflatten(2, (num_key_value_heads, -1)) for cache in (key, value))
    o = torch.empty_like(query)
    for b, length in enumerate(actual_seq_lengths_kv):
        k, v = gather(keys, tables[b], length), gather(values, tables[b], length)
        limits = _mask(sparse_mode, atten_mask, pre_tokens, next_tokens)
        o[rows[b] : rows[b + 1]], _ = attention(query[rows[b] : rows[b + 1]], k, v, scale, *limits, None)
    return o, torch.zeros(1)
