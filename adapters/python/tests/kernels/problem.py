"""Attention problems in every call form, with poison in dead slots, and their results in float64."""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

FORMATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def offsets(lengths):
    """cu_seqlens of lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


@dataclass
class Problem:
    """Sequences of `(rows, keys)`, and what a call says of them."""

    sequences: list
    q_heads: int = 4
    kv_heads: int = 2
    d_qk: int = 32
    d_v: int = 32
    softmax_scale: float = 0.125
    causal: str | None = "bottom_right"
    window_left: int | None = None
    window_right: int | None = None
    softcap: float | None = None
    sinks: bool = False
    format: str = "f32"
    knobs: dict = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self):
        random = np.random.default_rng(self.seed)

        def normal(*shape):
            return random.standard_normal(shape).astype(np.float32).astype(FORMATS[self.format])

        self.q = [normal(rows, self.q_heads, self.d_qk) for rows, _ in self.sequences]
        self.k = [normal(keys, self.kv_heads, self.d_qk) for _, keys in self.sequences]
        self.v = [normal(keys, self.kv_heads, self.d_v) for _, keys in self.sequences]
        self.sink_logits = random.standard_normal(self.q_heads).astype(np.float32)

    def attributes(self):
        return {
            "q_heads": self.q_heads, "kv_heads": self.kv_heads, "d_qk": self.d_qk, "d_v": self.d_v, "block_q": 64,
            "softmax_scale": self.softmax_scale, "softcap": self.softcap, "out_dtype": self.format, "knobs": self.knobs,
            "causal": self.causal, "window_left": self.window_left, "window_right": self.window_right,
            "lse": True, "context": None,
        }  # fmt: skip

    def mask(self, rows, keys):
        position = np.arange(rows)[:, None] + (0 if self.causal == "top_left" else keys - rows)
        key = np.arange(keys)[None, :]
        mask = np.ones((rows, keys), bool)
        if self.causal:
            mask &= key <= position
        if self.window_left is not None:
            mask &= key >= position - self.window_left
        if self.window_right is not None:
            mask &= key <= position + self.window_right
        return mask

    def scores(self, index):
        """[q_heads, rows, keys] of one sequence in float64, -inf where a key is not seen; a sink is no key."""
        q, k = (x[index].astype(np.float64) for x in (self.q, self.k))
        rows, keys = self.sequences[index]
        scores = np.einsum("ihd,jhd->hij", q, np.repeat(k, self.q_heads // self.kv_heads, 1)) * self.softmax_scale
        if self.softcap is not None:
            scores = self.softcap * np.tanh(scores / self.softcap)
        return np.where(self.mask(rows, keys), scores, -np.inf)

    def truth(self, index):
        """`o` and `lse` of one sequence, in float64; a row without keys has 0 and -inf."""
        scores, v = self.scores(index), self.v[index].astype(np.float64)
        if self.sinks:
            sink = np.broadcast_to(self.sink_logits.astype(np.float64)[:, None, None], (*scores.shape[:2], 1))
            scores, v = np.concatenate([scores, sink], 2), np.concatenate([v, np.zeros((1, *v.shape[1:]))])
        top = scores.max(2, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
        total = weights.sum(2, keepdims=True)
        with np.errstate(divide="ignore"):
            lse = (top + np.log(total))[..., 0]
        o = np.einsum("hij,jhd->ihd", weights / np.where(total == 0, 1, total), np.repeat(v, self.q_heads // self.kv_heads, 1))
        return o, lse.T

    def extras(self):
        return {"sinks": self.sink_logits} if self.sinks else {}

    def poison(self, *shape):
        """Slots outside the valid lengths: NaN in even rows, huge values in odd ones."""
        dtype = FORMATS[self.format]
        slots = np.full(shape, np.nan, dtype)
        slots[:, 1::2] = ml_dtypes.finfo(dtype).max if self.format == "bf16" else np.finfo(dtype).max
        return slots

    def run(self, kernel, form):
        """Calls a kernel in one form: `o` and `lse` of each sequence."""
        rows, keys = (np.array([pair[i] for pair in self.sequences], np.int32) for i in (0, 1))
        batch, attributes = len(rows), self.attributes()
        packed = {"q": np.concatenate(self.q), "cu_seqlens_q": offsets(rows)}
        if form == "varlen":
            tensors = packed | {"k": np.concatenate(self.k), "v": np.concatenate(self.v), "cu_seqlens_k": offsets(keys)}
            o, lse = kernel.call("varlen", attributes, tensors | self.extras())
        elif form in ("dense_left", "dense_right"):
            spare = 3
            q = self.poison(batch, rows.max() + spare, self.q_heads, self.d_qk)
            k = self.poison(batch, keys.max() + spare, self.kv_heads, self.d_qk)
            v = self.poison(batch, keys.max() + spare, self.kv_heads, self.d_v)

            def at(x, length):
                return slice(0, length) if form == "dense_right" else slice(x.shape[1] - length, x.shape[1])

            for b in range(batch):
                q[b, at(q, rows[b])], k[b, at(k, keys[b])], v[b, at(v, keys[b])] = self.q[b], self.k[b], self.v[b]
            tensors = {"q": q, "k": k, "v": v, "lengths_q": rows, "lengths_kv": keys}
            o, lse = kernel.call("dense", attributes, tensors | self.extras(), padding=form.removeprefix("dense_"))
            o = np.concatenate([o[b, at(q, rows[b])] for b in range(batch)])
            lse = None if lse is None else np.concatenate([lse[b, at(q, rows[b])] for b in range(batch)])
        elif form == "contiguous":
            places = np.arange(batch)[::-1] + 1
            k = self.poison(batch + 2, keys.max() + 5, self.kv_heads, self.d_qk)
            v = self.poison(batch + 2, keys.max() + 5, self.kv_heads, self.d_v)
            for b in range(batch):
                k[places[b], : keys[b]], v[places[b], : keys[b]] = self.k[b], self.v[b]
            tensors = packed | {"k_cache": k, "v_cache": v, "cache_rows": places.astype(np.int32)}
            tensors |= {"cache_seqlens": keys, "prefix_lens": np.zeros(batch, np.int32)}
            o, lse = kernel.call("paged", attributes, tensors | self.extras())
        else:
            o, lse = kernel.call("paged", attributes, packed | self.pages(int(form.removeprefix("paged_")), keys) | self.extras())
        assert o.shape == (rows.sum(), self.q_heads, self.d_v) and o.dtype == FORMATS[self.format]
        assert lse is None or (lse.shape == (rows.sum(), self.q_heads) and lse.dtype == np.float32)
        return tuple(None if x is None else np.split(x, np.cumsum(rows)[:-1]) for x in (o, lse))

    def pages(self, page_size, keys):
        """A cache in pages of this size, scattered, with a spare page, and a table wider than needed."""
        need = [-(-int(n) // page_size) for n in keys]
        width = max(need) + 1
        order = np.random.default_rng(self.seed).permutation(sum(need) + 1).astype(np.int32)
        spare, order = order[-1], list(order[:-1])
        k = self.poison(sum(need) + 1, page_size, self.kv_heads, self.d_qk)
        v = self.poison(sum(need) + 1, page_size, self.kv_heads, self.d_v)
        table = np.full((len(keys), width), spare, np.int32)
        for b, pages in enumerate(need):
            for i in range(pages):
                table[b, i] = page = order.pop()
                part = slice(i * page_size, min((i + 1) * page_size, int(keys[b])))
                k[page, : part.stop - part.start], v[page, : part.stop - part.start] = self.k[b][part], self.v[b][part]
        lengths = {"cache_seqlens": keys, "prefix_lens": np.zeros(len(keys), np.int32)}
        return {"k_cache": k, "v_cache": v, "block_table": table} | lengths
