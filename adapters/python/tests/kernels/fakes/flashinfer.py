"""FlashInfer, recorded: signatures of flashinfer/prefill.py at 002920b. lse is in base 2, and masks lie to the bottom right."""

import math

import torch
from exact import attention, gather, int32, sixteen, whole

__version__ = "fake"


class _Wrapper:
    def _init(self, workspace, kv_layout, backend):
        assert workspace.dtype == torch.uint8 and workspace.numel() == 128 * 1024 * 1024, "the recommended size is 128MB"
        assert kv_layout in ("NHD", "HND") and backend in ("auto", "fa2", "fa3", "cudnn", "trtllm-gen", "cutlass", "cute-dsl")
        self.layout, self.planned = kv_layout, None

    def _plan(self, heads, kv_heads, head_dim, head_dim_vo, **rest):
        assert rest["q_data_type"] == rest["kv_data_type"] and isinstance(rest["q_data_type"], torch.dtype)
        assert head_dim_vo in (None, head_dim) and heads % kv_heads == 0
        assert rest["fixed_split_size"] is None or (rest["fixed_split_size"] > 0 and not rest["disable_split_kv"])
        assert rest["pos_encoding_mode"] == "NONE" and not rest["use_fp16_qk_reduction"] and rest["custom_mask"] is None
        self.planned = dict(rest, heads=heads, kv_heads=kv_heads, head_dim=head_dim)

    def _run(self, q, sequences, rows, return_lse):
        it = self.planned
        assert q.dtype == it["q_data_type"] and q.shape == (rows[-1], it["heads"], it["head_dim"])
        o, lse = torch.zeros_like(q), torch.empty(q.shape[:2])
        for (a, b), (k, v) in zip(zip(rows, rows[1:]), sequences):
            assert k.shape[1:] == v.shape[1:] == (it["kv_heads"], it["head_dim"])
            window, cap = whole(it["window_left"]), it["logits_soft_cap"]
            o[a:b], lse[a:b] = attention(q[a:b], k, v, it["sm_scale"], it["causal"], window, None, cap)
        return (o, lse / math.log(2)) if return_lse else o


class BatchPrefillWithRaggedKVCacheWrapper(_Wrapper):
    def __init__(
        self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None, kv_indptr_buf=None,
        custom_mask_buf=None, mask_indptr_buf=None, backend="auto", jit_args=None, jit_kwargs=None,
    ):  # fmt: skip
        self._init(float_workspace_buffer, kv_layout, backend)

    def plan(
        self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo=None, custom_mask=None,
        packed_custom_mask=None, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, window_left=-1,
        logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, q_data_type="float16", kv_data_type=None,
        o_data_type=None, non_blocking=True, prefix_len_ptr=None, token_pos_in_items_ptr=None, token_pos_in_items_len=0,
        max_item_len_ptr=None, fixed_split_size=None, disable_split_kv=False, seq_lens=None, seq_lens_q=None,
        max_token_per_sequence=None, max_sequence_kv=None, v_indptr=None, o_indptr=None,
    ):  # fmt: skip
        self._plan(
            num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, custom_mask=custom_mask, causal=causal, sm_scale=sm_scale,
            pos_encoding_mode=pos_encoding_mode, use_fp16_qk_reduction=use_fp16_qk_reduction, window_left=window_left,
            logits_soft_cap=logits_soft_cap, q_data_type=q_data_type, kv_data_type=kv_data_type,
            fixed_split_size=fixed_split_size, disable_split_kv=disable_split_kv,
        )  # fmt: skip
        self.rows, self.keys = int32(qo_indptr, -1), int32(kv_indptr, len(qo_indptr))

    def run(
        self, q, k, v, *args, q_scale=None, k_scale=None, v_scale=None, o_scale=None, out=None, lse=None, return_lse=False,
        enable_pdl=None, kv_cache_sf=None,
    ):  # fmt: skip
        sixteen(q, k, v)
        assert not args and self.layout == "NHD" and len(k) == len(v) == self.keys[-1]
        return self._run(q, [(k[a:b], v[a:b]) for a, b in zip(self.keys, self.keys[1:])], self.rows, return_lse)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    def __init__(
        self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None, paged_kv_indptr_buf=None,
        paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None, custom_mask_buf=None, mask_indptr_buf=None, backend="auto",
        jit_args=None, jit_kwargs=None,
    ):  # fmt: skip
        self._init(float_workspace_buffer, kv_layout, backend)

    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim_qk,
        page_size, head_dim_vo=None, custom_mask=None, packed_custom_mask=None, causal=False, pos_encoding_mode="NONE",
        use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None, rope_scale=None, rope_theta=None,
        q_data_type="float16", kv_data_type=None, o_data_type=None, non_blocking=True, prefix_len_ptr=None,
        token_pos_in_items_ptr=None, token_pos_in_items_len=0, max_item_len_ptr=None, seq_lens=None, seq_lens_q=None,
        block_tables=None, max_token_per_sequence=None, max_sequence_kv=None, fixed_split_size=None, disable_split_kv=False,
    ):  # fmt: skip
        self._plan(
            num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, custom_mask=custom_mask, causal=causal, sm_scale=sm_scale,
            pos_encoding_mode=pos_encoding_mode, use_fp16_qk_reduction=use_fp16_qk_reduction, window_left=window_left,
            logits_soft_cap=logits_soft_cap, q_data_type=q_data_type, kv_data_type=kv_data_type,
            fixed_split_size=fixed_split_size, disable_split_kv=disable_split_kv,
        )  # fmt: skip
        self.rows, self.page_size = int32(qo_indptr, -1), page_size
        indptr, last = int32(paged_kv_indptr, len(qo_indptr)), int32(paged_kv_last_page_len, len(qo_indptr) - 1)
        indices = int32(paged_kv_indices, indptr[-1])
        self.pages = [indices[a:b] for a, b in zip(indptr, indptr[1:])]
        assert all(1 <= n <= page_size for n, pages in zip(last, self.pages) if pages)
        self.lengths = [max(len(pages) - 1, 0) * page_size + n for pages, n in zip(self.pages, last)]

    def run(
        self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
        enable_pdl=None, window_left=None, sinks=None, kv_cache_sf=None, skip_softmax_threshold_scale_factor=None,
    ):  # fmt: skip
        assert not args and isinstance(paged_kv_cache, tuple) and all(cache.is_contiguous() for cache in paged_kv_cache)
        sixteen(q, *paged_kv_cache)
        k, v = (cache.transpose(1, 2) if self.layout == "HND" else cache for cache in paged_kv_cache)
        assert k.shape[1:] == (self.page_size, self.planned["kv_heads"], self.planned["head_dim"])
        sequences = [(gather(k, *at), gather(v, *at)) for at in zip(self.pages, self.lengths)]
        return self._run(q, sequences, self.rows, return_lse)
