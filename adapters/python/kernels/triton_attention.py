"""A small paged FlashAttention in Triton, for packed queries: one program for a block of rows, a head and a sequence.

It stands for the kernels that people write in Triton: keys are read through a block table, weights are rounded to the storage
format before the product with V, exponentials are of base 2. Training's packed keys are read as pages of one key. With
TRITON_INTERPRET=1 and LASTBIT_DEVICE=cpu it runs without a GPU; Triton's interpreter has no bf16 product.
"""

import os

import torch
import triton
import triton.language as tl

import lastbit

DEVICE = os.environ.get("LASTBIT_DEVICE", "cuda")
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
NUMERICS = "aligned,score.scale=folded_log2e,score.fma=true"
kernel = lastbit.Kernel(
    "triton-attention", "1", device=DEVICE, arrays="torch", libraries=["triton"], lse=True, compiles=True,
    details={"interpreted": INTERPRETED}, forms=["varlen", "paged"], formats=["f32", "f16"] + ([] if INTERPRETED else ["bf16"]),
    features=["causal", "not_causal", "grouped_heads"], head_dims=[16, 32, 64, 128], knobs={"block_n": ["64", "32", "128"]},
    numerics={"*": NUMERICS, "bf16": f"{NUMERICS},probs.dtype=bf16", "f16": f"{NUMERICS},probs.dtype=f16"},
)  # fmt: skip


@triton.jit
def attention(
    Q, K, V, O, LSE, CU, KEYS, TABLE, WIDTH, PAGE, SCALE, GROUP,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Q and O [total_q, heads, D], K and V [pages, PAGE, kv_heads, D], LSE [total_q, heads], TABLE [batch, WIDTH]; contiguous."""
    head, heads, entry = tl.program_id(1), tl.num_programs(1), tl.program_id(2)
    first, last, keys = tl.load(CU + entry), tl.load(CU + entry + 1), tl.load(KEYS + entry)
    lane, row = tl.arange(0, D), first + tl.program_id(0) * M + tl.arange(0, M)
    valid = row < last
    place = (row[:, None] * heads + head) * D + lane[None, :]
    q = tl.load(Q + place, valid[:, None], 0.0)
    limit = keys - (last - row) if CAUSAL else row * 0 + keys - 1  # The last key that a row sees.
    m, l, acc = tl.full([M], float("-inf"), tl.float32), tl.zeros([M], tl.float32), tl.zeros([M, D], tl.float32)
    for start in range(0, keys, N):
        key = start + tl.arange(0, N)
        slot = tl.load(TABLE + entry * WIDTH + key // PAGE, key < keys, 0).to(tl.int64) * PAGE + key % PAGE
        stored = (slot[:, None] * (heads // GROUP) + head // GROUP) * D + lane[None, :]
        k, v = tl.load(K + stored, (key < keys)[:, None], 0.0), tl.load(V + stored, (key < keys)[:, None], 0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * (SCALE * 1.4426950408889634)
        s = tl.where((key[None, :] <= limit[:, None]) & (key < keys)[None, :], s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(new == float("-inf"), 0.0, new)  # A row that has seen nothing yet.
        p, shrink = tl.exp2(s - base[:, None]), tl.exp2(m - base)
        m, l = new, l * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    o = acc / tl.where(l == 0, 1.0, l)[:, None]
    tl.store(O + place, o.to(O.dtype.element_ty), valid[:, None])
    tl.store(LSE + row * heads + head, (m + tl.log2(l)) * 0.6931471805599453, valid)


def launch(call, k, v, table, keys, page):
    o, lse = torch.empty_like(call.q), call.q.new_empty(call.q.shape[:2], dtype=torch.float32)
    grid = (triton.cdiv(max(call.max_seqlen_q, 1), 16), call.q_heads, call.batch)
    attention[grid](
        call.q, k, v, o, lse, call.cu_seqlens_q, keys, table, table.shape[1], page, call.softmax_scale, call.gqa,
        D=call.d_qk, M=16, N=int(call.knobs["block_n"]), CAUSAL=call.causal is not None,
    )  # fmt: skip
    return o, lse


@kernel.varlen
def varlen(call):
    table = call.cu_seqlens_k[:-1, None] + torch.arange(max(call.max_seqlen_k, 1), dtype=torch.int32, device=DEVICE)
    return launch(call, call.k, call.v, table.contiguous(), call.cu_seqlens_k.diff(), 1)


kernel.paged(lambda call: launch(call, call.k_cache, call.v_cache, call.block_table, call.cache_seqlens, call.page_size))
if __name__ == "__main__":
    kernel.run()
