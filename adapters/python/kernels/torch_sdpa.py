"""PyTorch's scaled_dot_product_attention, as training and Hugging Face style engines call it. LASTBIT_DEVICE=cuda for a GPU.

Training: packed sequences one by one, padded batches with a boolean mask. Inference: the batch against a contiguous KV cache, cut
to its longest entry (`cache=dynamic`) or whole (`cache=static`). `is_causal` is top-left in PyTorch, so it stands for the mask
only where rows and keys are the same positions.
"""

import contextlib
import os

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import lastbit

DEVICE = os.environ.get("LASTBIT_DEVICE", "cpu")
BACKENDS = {"default": None, "math": SDPBackend.MATH}  # On a CPU the default is flash wherever that can be.
BACKENDS |= {} if DEVICE == "cpu" else {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
KNOBS = {"backend": list(BACKENDS), "gqa": ["repeat", "enable_gqa"], "cache": ["dynamic", "static"]}
# Fused kernels round unnormalised weights to the storage format; `math` multiplies q and k by sqrt(scale) each, for which
# folded_log2e has the roundings. One declaration holds for all backends.
NUMERICS = "aligned,score.scale=folded_log2e"

kernel = lastbit.Kernel(
    "torch-sdpa", version=torch.__version__, device=DEVICE, arrays="torch", libraries=["torch"], lse=False,
    details={"cpu_capability": torch.backends.cpu.get_cpu_capability()}, empty_rows=False,  # they get zeros of either sign
    forms=["varlen", "dense_left", "dense_right", "contiguous"], formats=["f32", "bf16", "f16"],
    features=["causal", "causal_top_left", "not_causal", "window", "grouped_heads", "unequal_head_dims"],
    numerics={"*": NUMERICS, "bf16": f"{NUMERICS},probs.dtype=bf16", "f16": f"{NUMERICS},probs.dtype=f16"},
    knobs=KNOBS | ({"threads": ["1", "2"]} if DEVICE == "cpu" else {}),
)  # fmt: skip


def attend(call, q, k, v, mask):
    if DEVICE == "cpu":
        torch.set_num_threads(int(call.knobs["threads"]))
    # Masked values are multiplied by zero, so dead slots must be finite: engines zero their caches.
    k, v = (torch.where(mask.any(1)[:, :, None, None], x, 0) for x in (k, v))
    repeat = 1 if call.knobs["gqa"] == "enable_gqa" else call.gqa
    q, k, v = q.transpose(1, 2), *(x.transpose(1, 2).repeat_interleave(repeat, 1) for x in (k, v))
    options = {"scale": call.softmax_scale, "enable_gqa": repeat == 1}
    if mask.shape[1] == mask.shape[2] and torch.equal(mask, torch.ones_like(mask).tril()):
        options["is_causal"] = True
    elif not mask.all():
        options["attn_mask"] = mask[:, None]
    backend = BACKENDS[call.knobs["backend"]]
    try:
        with sdpa_kernel(backend) if backend else contextlib.nullcontext():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2)
    except RuntimeError as error:
        if "No available kernel" in str(error) or "No viable backend" in str(error):
            raise lastbit.Unsupported(f"{backend} does not take this call") from None
        raise


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
