"""ONNX Runtime's com.microsoft GroupQueryAttention, as generated language models call it: the rows of a step and their keys come
in, the keys before them lie in past_key and past_value.

A prompt (no keys before the rows) and a decode step go without `query_seqlens`; a chunk with context needs it (ONNX Runtime
1.32).
"""

import functools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import lastbit

kernel = lastbit.Kernel(
    "onnxruntime-gqa", version=onnxruntime.__version__, arrays="numpy", libraries=["onnxruntime", "onnx"], lse=False,
    forms=["dense_right", "contiguous"], formats=["f32", "f16"],
    features=["causal", "window", "softcap", "grouped_heads"], numerics={"*": "naive"}, knobs={"threads": ["1", "2"]},
    empty_rows=False, empty_sequences=False, head_dims={"max": 256, "multiple_of": 8},
)  # fmt: skip


FLOATS, INTS = ["query", "key", "value", "past_key", "past_value"], ["seqlens_k", "total_sequence_length", "query_seqlens"]
OUTPUTS = ["output", "present_key", "present_value"]


@functools.lru_cache(maxsize=256)
def session(dtype, chunked, threads, **attributes):
    """A model of the one operator, with `query_seqlens` (its 17th input) or without."""
    element, ints = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), INTS if chunked else INTS[:2]
    inputs = FLOATS + INTS[:2] + ([""] * 9 + INTS[2:] if chunked else [])
    node = helper.make_node("GroupQueryAttention", inputs, OUTPUTS, domain="com.microsoft", **attributes)
    types = dict.fromkeys(FLOATS, element) | dict.fromkeys(ints, TensorProto.INT32) | dict.fromkeys(OUTPUTS, element)
    values = [helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()]
    graph = helper.make_graph([node], "gqa", values[:-3], values[-3:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def attend(call, sequences):
    """o of each sequence (q, k, v), in one run."""
    rows, keys = ([len(sequence[i]) for sequence in sequences] for i in (0, 1))
    before = [m - n for n, m in zip(rows, keys)]
    batch, slots, context, dtype = len(rows), max(rows), max(before), call.q.dtype
    heads = (call.q_heads, call.kv_heads, call.kv_heads)
    query, key, value = (np.zeros((batch, slots, n, call.d_qk), dtype) for n in heads)
    past_key, past_value = (np.zeros((batch, call.kv_heads, context, call.d_qk), dtype) for _ in range(2))
    for b, (q, k, v) in enumerate(sequences):
        query[b, : rows[b]], key[b, : rows[b]], value[b, : rows[b]] = q, k[before[b] :], v[before[b] :]
        past_key[b, :, : before[b]], past_value[b, :, : before[b]] = (x[: before[b]].swapaxes(0, 1) for x in (k, v))
    chunked = slots > 1 and context > 0
    feeds = {name: x.reshape(batch, slots, -1) for name, x in {"query": query, "key": key, "value": value}.items()}
    feeds |= {"past_key": past_key, "past_value": past_value, "seqlens_k": np.array(keys, np.int32) - 1}
    feeds["total_sequence_length"] = np.array(context + slots if chunked else max(keys), np.int32)
    if chunked:
        feeds["query_seqlens"] = np.array(rows, np.int32)
    attributes = {"num_heads": call.q_heads, "kv_num_heads": call.kv_heads, "scale": call.softmax_scale}
    attributes["softcap"] = call.softcap or 0.0
    attributes["local_window_size"] = -1 if call.window_left is None else call.window_left + 1
    o = session(dtype.type, chunked, int(call.knobs["threads"]), **attributes).run(["output"], feeds)[0]
    return [o[b, :n].reshape(n, call.q_heads, call.d_qk) for b, n in enumerate(rows)]


@kernel.dense
@kernel.paged
def batch(call):
    if any(rows > keys for rows, keys in zip(call.q_lens, call.kv_lens)):
        raise lastbit.Unsupported("GroupQueryAttention takes no more rows than keys")
    return call.assemble(attend(call, list(call.sequences())))


if __name__ == "__main__":
    kernel.run()
