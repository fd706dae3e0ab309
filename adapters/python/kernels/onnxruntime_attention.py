"""ONNX Runtime's ai.onnx Attention (opset 24): padded batches, and a KV cache that is kept outside of the operator.

Where rows and keys are the same positions, `is_causal` alone is the mask. Where all entries of a step have as many rows, as in
decode, `nonpad_kv_seqlen` says how much of the cache is valid and moves the causal mask to the bottom right. Else a boolean mask
says it all. In f16, scores and weights are stored in f16, and softcap, which is left out, would be rounded after each step.
"""

import functools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import lastbit

kernel = lastbit.Kernel(
    "onnxruntime-attention", version=onnxruntime.__version__, arrays="numpy", libraries=["onnxruntime", "onnx"], lse=False,
    forms=["dense_left", "dense_right", "contiguous"], formats=["f32", "f16"],
    features=["causal", "causal_top_left", "not_causal", "window", "grouped_heads", "unequal_head_dims"],
    numerics={"*": "naive", "f16": "naive,score.store=f16,probs.dtype=f16"},
    knobs={"cache": ["dynamic", "static"], "threads": ["1", "2"]},
)  # fmt: skip


@functools.lru_cache(maxsize=256)
def session(dtype, masked, counted, threads, **attributes):
    """A model of the one operator, with the optional inputs that a call has."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    types = {"Q": element, "K": element, "V": element}
    types |= {"attn_mask": TensorProto.BOOL} if masked else {}
    types |= {"nonpad_kv_seqlen": TensorProto.INT64} if counted else {}
    inputs = ["Q", "K", "V", "attn_mask" if masked else "", "", "", "nonpad_kv_seqlen" if counted else ""]
    node = helper.make_node("Attention", inputs, ["Y"], **attributes)
    *given, output = (helper.make_tensor_value_info(name, kind, None) for name, kind in [*types.items(), ("Y", element)])
    graph = helper.make_graph([node], "attention", given, [output])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def attend(call, q, k, v, mask, left=False):
    """q [batch, rows, q_heads, d_qk], k and v [batch, keys, kv_heads, d], mask [batch, rows, keys]: o."""
    if 0 in mask.shape:
        return np.zeros((*q.shape[:3], call.d_v), q.dtype)
    # Masked values are multiplied by zero, so dead slots must be finite: engines zero their caches.
    k, v = (np.where(mask.any(1)[:, :, None, None], x, np.zeros((), x.dtype)) for x in (k, v))
    feeds = {name: np.ascontiguousarray(x.swapaxes(1, 2)) for name, x in {"Q": q, "K": k, "V": v}.items()}
    windowed = (call.window_left, call.window_right) != (None, None)
    is_causal = call.causal is not None
    if not left and not windowed and call.causal != "top_left" and min(call.q_lens) == q.shape[1]:
        feeds["nonpad_kv_seqlen"] = np.array(call.kv_lens, np.int64)
    elif left or windowed or not is_causal or (call.causal == "bottom_right" and call.q_lens != call.kv_lens):
        feeds["attn_mask"], is_causal = mask[:, None], False
    run = session(
        q.dtype.type, "attn_mask" in feeds, "nonpad_kv_seqlen" in feeds, int(call.knobs["threads"]),
        is_causal=int(is_causal), scale=call.softmax_scale,
    ).run  # fmt: skip
    return run(["Y"], feeds)[0].swapaxes(1, 2)


@kernel.dense
def dense(call):
    return attend(call, call.q, call.k, call.v, call.padded_mask(), call.padding == "left")


@kernel.paged
def contiguous(call):
    keys = call.page_size if call.knobs["cache"] == "static" else call.max_seqlen_k
    q = np.zeros((call.batch, call.max_seqlen_q, *call.q.shape[1:]), call.q.dtype)
    mask = np.zeros((*q.shape[:2], keys), bool)
    for b, (rows, n, m) in enumerate(zip(np.split(call.q, call.cu_seqlens_q[1:-1]), call.q_lens, call.kv_lens)):
        q[b, :n], mask[b, :n, :m] = rows, call.mask(n, m)
    o = attend(call, q, call.k_cache[call.row_of, :keys], call.v_cache[call.row_of, :keys], mask)
    return call.assemble([o[b, :n] for b, n in enumerate(call.q_lens)])


if __name__ == "__main__":
    kernel.run()
