# pip install ./adapters/python, then: lastbit-check my_kernel.py
import numpy as np

import lastbit

kernel = lastbit.Kernel(
    "mine", version="0.1", formats=["f32"], features=["causal", "not_causal"], lse=False, empty_rows=False, empty_sequences=False
)


@kernel.sequence
def attention(call):  # q [rows, heads, d], k and v [keys, heads, d], whatever the call's layout was
    scores = np.einsum("ihd,jhd->hij", call.q, call.k) * np.float32(call.softmax_scale)
    scores = np.where(call.mask(), scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", weights, call.v)


if __name__ == "__main__":
    kernel.run()
