"""Recorded: vllm/v1/attention/ops/triton_unified_attention.py at 0013943."""

import torch
from exact import attention, gather, int32, sixteen, whole


def unified_attention(
    q, k, v, out, cu_seqlens_q, max_seqlen_q, seqused_k, max_seqlen_k, softmax_scale, causal, window_size, block_table, softcap,
    q_descale, k_descale, v_descale, seq_threshold_3D=None, num_par_softmax_segments=None, softmax_segm_output=None,  # noqa: N803
    softmax_segm_max=None, softmax_segm_expsum=None, alibi_slopes=None, output_scale=None, qq_bias=None, sinks=None,
    mm_prefix_range=None, use_alibi_sqrt=False, kv_quant_mode=None, k_scale_cache=None, v_scale_cache=None,
):  # fmt: skip
    sixteen(q, k, v, out)
    assert causal, "Only causal attention is supported"
    assert q_descale is k_descale is v_descale is alibi_slopes is output_scale is qq_bias is mm_prefix_range is None
    assert sinks is None or sinks.shape == (q.shape[1],)
    batch = len(seqused_k)
    if seq_threshold_3D is not None:
        segments = num_par_softmax_segments
        assert softmax_segm_output.shape[:3] == softmax_segm_max.shape == softmax_segm_expsum.shape
        assert softmax_segm_max.shape == (seq_threshold_3D, q.shape[1], segments) and seq_threshold_3D >= batch
        assert softmax_segm_output.shape[3] >= q.shape[2] and softmax_segm_output.dtype == torch.float32
    rows, tables, lengths = int32(cu_seqlens_q, batch + 1), int32(block_table, batch, -1), int32(seqused_k, batch)
    for b, (start, end) in enumerate(zip(rows, rows[1:])):
        keys, values = (gather(cache, tables[b], lengths[b]) for cache in (k, v))
        window = whole(window_size[0])
        out[start:end], _ = attention(q[start:end], keys, values, softmax_scale, True, window, None, softcap, sinks)
