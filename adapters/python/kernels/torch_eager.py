"""Attention of matrix products and a softmax, as `eager_attention_forward` of Hugging Face models writes it (transformers,
models/llama/modeling_llama.py). LASTBIT_DEVICE=cuda for a GPU.

Scores stay in the storage format, the mask is added as the format's lowest number, the softmax runs in f32 and its weights are
rounded back (`softmax=dtype`: in the storage format). The lowest number makes a row without keys the mean of all values: such
rows are declared as not supported.
"""

import os

import torch

import lastbit

DEVICE = os.environ.get("LASTBIT_DEVICE", "cpu")


def numerics(dtype):
    """The score is rounded once as the product and once when it is scaled; the one field that covers both is score.acc."""
    return f"naive,score.acc={dtype},score.store={dtype},probs.dtype={dtype}"


kernel = lastbit.Kernel(
    "torch-eager", version=torch.__version__, device=DEVICE, arrays="torch", libraries=["torch"], lse=False, empty_rows=False,
    details={"cpu_capability": torch.backends.cpu.get_cpu_capability()},
    forms=["varlen", "dense_left", "dense_right", "contiguous"], formats=["f32", "bf16", "f16"],
    features=["causal", "causal_top_left", "not_causal", "window", "grouped_heads", "unequal_head_dims"],
    numerics={"*": "naive", "bf16": numerics("bf16"), "f16": numerics("f16")},
    knobs={"softmax": ["f32", "dtype"], "cache": ["dynamic", "static"]} | ({"threads": ["1", "2"]} if DEVICE == "cpu" else {}),
)  # fmt: skip


def attend(call, q, k, v, mask):
    if DEVICE == "cpu":
        torch.set_num_threads(int(call.knobs["threads"]))
    # Masked values are multiplied by zero, so dead slots must be finite: engines zero their caches.
    k, v = (torch.where(mask.any(1)[:, :, None, None], x, 0) for x in (k, v))
    q, k, v = q.transpose(1, 2), *(x.transpose(1, 2).repeat_interleave(call.gqa, 1) for x in (k, v))
    causal_mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, torch.finfo(q.dtype).min)
    weights = torch.matmul(q, k.transpose(2, 3)) * call.softmax_scale + causal_mask[:, None]
    weights = torch.softmax(weights, dim=-1, dtype=q.dtype if call.knobs["softmax"] == "dtype" else torch.float32).to(q.dtype)
    return torch.matmul(weights, v).transpose(1, 2)


@kernel.varlen
def varlen(call):
    parts = [attend(call, q[None], k[None], v[None], call.mask(len(q), len(k))[None]) for q, k, v in call.sequences()]
    return call.assemble([o[0] for o in parts])


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
    o = attend(call, q, call.k_cache[call.row_of, :keys], call.v_cache[call.row_of, :keys], mask)
    return call.assemble([o[b, :n] for b, n in enumerate(call.q_lens)])


if __name__ == "__main__":
    kernel.run()
