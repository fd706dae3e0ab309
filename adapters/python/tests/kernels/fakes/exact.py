"""Attention in float64, for the fakes: what the libraries document, and nothing of the adapters."""

import torch


def attention(q, k, v, scale, causal, left, right, softcap, sinks=None):
    """q [rows, heads, d], k and v [keys, kv_heads, d]: o in q's format and lse [rows, heads], base e. Masks lie to the bottom
    right; left and right are numbers of keys, or None."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q.double(), k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    position = torch.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0]
    key = torch.arange(k.shape[0])[None, :]
    hidden = torch.zeros(q.shape[0], k.shape[0], dtype=torch.bool)
    if causal:
        hidden |= key > position
    if left is not None:
        hidden |= key < position - left
    if right is not None:
        hidden |= key > position + right
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, q.shape[0], 1)], 2)
        v = torch.cat([v, v.new_zeros(1, *v.shape[1:])])
    lse = scores.logsumexp(2) if scores.shape[2] else scores.new_full(scores.shape[:2], -torch.inf)
    weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0)[..., None])
    return torch.einsum("hij,jhd->ihd", weights, v).to(q.dtype), lse.T.float()


def whole(x):
    """A number of keys, of which -1 is all."""
    return None if x < 0 else x


def int32(x, *shape):
    """A contiguous int32 tensor of this shape, where -1 is any."""
    assert isinstance(x, torch.Tensor) and x.is_contiguous(), type(x)
    assert x.dtype == torch.int32, f"int32, not {x.dtype}"
    assert x.dim() == len(shape) and all(have == want or want == -1 for have, want in zip(x.shape, shape)), (x.shape, shape)
    return x.tolist()


def sixteen(q, *others):
    """16-bit tensors of one format, each with a contiguous last dimension."""
    assert q.dtype in (torch.bfloat16, torch.float16), q.dtype
    assert all(x.dtype == q.dtype and x.stride(-1) == 1 for x in (q, *others))


def gather(cache, pages, length):
    """The first keys of a sequence, [length, kv_heads, d], from a cache [pages, page_size, kv_heads, d]."""
    need = -(-length // cache.shape[1])
    assert len(pages) >= need
    return cache[pages[:need]].flatten(0, 1)[:length]


def longest(offsets):
    """The longest sequence of cu_seqlens."""
    return max(b - a for a, b in zip(offsets, offsets[1:]))
