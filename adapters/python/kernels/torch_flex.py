"""PyTorch's flex_attention (torch.nn.attention.flex_attention), with the mask as a mask_mod. LASTBIT_DEVICE=cuda for a GPU.

Uncompiled, it is PyTorch's own reference: f32 scores, weights divided by their sum and then rounded to the storage format. With
LASTBIT_COMPILE=1 there is a knob for the compiled kernel, which is what training runs; on a CPU that needs a C++ compiler and
seconds for each new shape.
"""

import os
import warnings

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import lastbit

warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
DEVICE = os.environ.get("LASTBIT_DEVICE", "cpu")
COMPILE = os.environ.get("LASTBIT_COMPILE") == "1"
FLEX = {"eager": flex_attention} | ({"compiled": torch.compile(flex_attention, dynamic=False)} if COMPILE else {})
# Both ways keep lse in base 2 and convert it at the end, for which folded_log2e has the roundings.
NUMERICS = "naive,score.scale=folded_log2e"

kernel = lastbit.Kernel(
    "torch-flex", version=torch.__version__, device=DEVICE, arrays="torch", libraries=["torch"], lse=True, compiles=COMPILE,
    details={"cpu_capability": torch.backends.cpu.get_cpu_capability()},
    forms=["varlen", "dense_left", "dense_right", "contiguous"], formats=["f32", "bf16", "f16"],
    features=["causal", "causal_top_left", "not_causal", "window", "softcap", "grouped_heads", "unequal_head_dims"],
    numerics={"*": NUMERICS, "bf16": f"{NUMERICS},probs.dtype=bf16", "f16": f"{NUMERICS},probs.dtype=f16"},
    knobs={"flex": list(FLEX), "cache": ["dynamic", "static"]} | ({"threads": ["1", "2"]} if DEVICE == "cpu" else {}),
)  # fmt: skip


def attend(call, q, k, v, mask):
    if DEVICE == "cpu":
        torch.set_num_threads(int(call.knobs["threads"]))
    # Masked values are multiplied by zero, so dead slots must be finite: engines zero their caches.
    k, v = (torch.where(mask.any(1)[:, :, None, None], x, 0) for x in (k, v))
    batch, rows, keys = mask.shape
    if 0 in mask.shape:
        return q.new_zeros(batch, rows, call.q_heads, call.d_v), q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32)

    def score_mod(score, b, h, i, j):
        return score if call.softcap is None else call.softcap * torch.tanh(score / call.softcap)

    def mask_mod(b, h, i, j):
        return mask[b, i, j]

    block_mask = create_block_mask(mask_mod, batch, None, rows, keys, device=DEVICE)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o, aux = FLEX[call.knobs["flex"]](
        q, k, v, score_mod, block_mask, call.softmax_scale, enable_gqa=True, return_aux=AuxRequest(lse=True)
    )
    return o.transpose(1, 2), aux.lse.transpose(1, 2)


@kernel.varlen
def varlen(call):
    parts = [attend(call, q[None], k[None], v[None], call.mask(len(q), len(k))[None]) for q, k, v in call.sequences()]
    return call.assemble([o[0] for o, _ in parts], [lse[0] for _, lse in parts])


@kernel.dense
def dense(call):
    return attend(call, call.q, call.k, call.v, call.padded_mask())


@kernel.paged
def contiguous(call):
    keys = call.page_size if call.knobs["cache"] == "static" else call.max_seqlen_k
    q = torch.nn.utils.rnn.pad_sequence(call.q.split(call.q_lens), batch_first=True)
    mask = torch.zeros(*q.shape[:2], keys, dtype=torch.bool, device=q.device)
    for b, (n, m) in enumerate(zip(call.q_lens, call.kv_lens)):
        mask[b, :n, :m] = call.mask(n, m)
    o, lse = attend(call, q, call.k_cache[call.row_of, :keys], call.v_cache[call.row_of, :keys], mask)
    return call.assemble([o[b, :n] for b, n in enumerate(call.q_lens)], [lse[b, :n] for b, n in enumerate(call.q_lens)])


if __name__ == "__main__":
    kernel.run()
