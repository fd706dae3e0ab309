"""Array libraries other than numpy: each is tested where it is installed."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from lastbit import frame
from lastbit.check.problem import Laid
from lastbit.check.trials import plain

FORMS = ("varlen", "dense_left", "dense_right", "paged", "contiguous")


def installed(name: str) -> bool:
    if importlib.util.find_spec(name) is None:
        return False
    try:
        importlib.import_module(name)
    except (ImportError, OSError):
        return False
    return True


def needs(name: str):
    return pytest.mark.skipif(not installed(name), reason=f"{name} is not installed, or cannot be imported")


TORCH = """
import torch, lastbit
torch.set_num_threads(1)
kernel = lastbit.Kernel("t", arrays="torch", knobs={{"split": ["no", "yes"]}})

def one(call, q, k, v):
    assert all(isinstance(x, torch.Tensor) for x in (q, k, v))
    q, k, v = (x.float().transpose(0, 1) for x in (q, k, v))
    k, v = k.repeat_interleave(call.gqa, 0), v.repeat_interleave(call.gqa, 0)
    s = torch.where(call.mask(q.shape[1], k.shape[1]), q @ k.transpose(1, 2) * call.softmax_scale, float("-inf"))
    lse = torch.logsumexp(s, -1) if k.shape[1] else s.new_full(s.shape[:-1], float("-inf"))
    o = torch.softmax(s, -1).nan_to_num(0.0) @ v
    return o.transpose(0, 1).to(getattr(torch, {{"f32": "float32", "f16": "float16", "bf16": "bfloat16"}}[call.out_dtype])), lse.T

@kernel.varlen
@kernel.dense
@kernel.paged
def f(call{out}):
    o, lse = zip(*(one(call, q, k, v) for q, k, v in call.sequences()))
    o, lse = call.assemble(o, lse)
    {end}

if __name__ == "__main__":
    kernel.run()
"""

JAX = """
import jax, jax.numpy as jnp, lastbit
kernel = lastbit.Kernel("j", arrays="jax")

def one(call, q, k, v):
    assert all(isinstance(x, jax.Array) for x in (q, k, v))
    q, k, v = (x.astype(jnp.float32).transpose(1, 0, 2) for x in (q, k, v))
    k, v = jnp.repeat(k, call.gqa, 0), jnp.repeat(v, call.gqa, 0)
    s = jnp.where(call.mask(q.shape[1], k.shape[1]), q @ k.transpose(0, 2, 1) * call.softmax_scale, -jnp.inf)
    m = jnp.max(s, -1, keepdims=True, initial=-1e30)
    p = jnp.exp(s - m)
    l = p.sum(-1, keepdims=True)
    o = (p / jnp.where(l == 0, 1, l)) @ v
    lse = (jnp.log(l) + m)[..., 0]
    return o.transpose(1, 0, 2).astype({"f32": jnp.float32, "f16": jnp.float16, "bf16": jnp.bfloat16}[call.out_dtype]), lse.T

@kernel.varlen
@kernel.dense
@kernel.paged
def f(call):
    o, lse = zip(*(one(call, q, k, v) for q, k, v in call.sequences()))
    return call.assemble(o, lse)

if __name__ == "__main__":
    kernel.run()
"""

# A function of one sequence sees the library's arrays too.
ONE = """
import {module}, lastbit
kernel = lastbit.Kernel("one", arrays="{name}", lse=False)

@kernel.sequence
def f(call):
    assert "float32" in str(call.q.dtype) and type(call.q).__module__.startswith("{name}"), type(call.q)
    return call.q

kernel.run()
"""


def run(start, text: str, lengths=((5, 9), (0, 3), (1, 7), (2, 0))):
    child = start(text)
    answer = child.ask(frame.HELLO, {"versions": "1"})
    assert answer.kind == frame.WELCOME, answer.body.metadata
    for storage in ("f32", "f16", "bf16"):
        for form in FORMS:
            base = replace(plain({"formats": [storage]}), form=form, lengths=lengths)
            for problem in (base, base.with_attributes(q_heads=4, kv_heads=2, window_left=2)):
                laid = Laid(problem)
                answer = child.ask(frame.CALL, *laid.request())
                assert answer.kind == frame.RESULT, answer.body.metadata
                _, wrong = laid.look(answer.body, {}, True)
                assert wrong is None, (storage, form, wrong)
    return child


@needs("torch")
def test_torch(start):
    child = run(start, TORCH.format(out="", end="return o, lse"))
    metadata, tensors = Laid(replace(plain({}), knobs={"workspace": "dirty", "split": "yes"})).request()
    assert child.ask(frame.CALL, metadata, tensors).kind == frame.RESULT


@needs("torch")
def test_torch_with_guarded_outputs(start):
    run(start, TORCH.format(out=", *, out, lse_out", end="out.copy_(o); lse_out.copy_(lse)"))


@needs("torch")
def test_torch_writes_outside_are_seen(start):
    end = "out.copy_(o); lse_out.copy_(lse); import ctypes; ctypes.memset(out.data_ptr() + out.numel() * 2, 1, 6)"
    child = start(TORCH.format(out=", *, out, lse_out", end=end))
    child.ask(frame.HELLO, {"versions": "1"})
    answer = child.ask(frame.CALL, *Laid(plain({"formats": ["bf16"]})).request())
    assert answer.body.metadata["breakage"] == "wrote_outside" and "3 elements after its end" in answer.body.metadata["reason"]


@needs("torch")
def test_torch_results_of_other_formats_are_refused(start):
    child = start(TORCH.format(out="", end="return o.double(), lse"))
    child.ask(frame.HELLO, {"versions": "1"})
    answer = child.ask(frame.CALL, *Laid(plain({})).request())
    assert "o is float64, the call asks for f32" in answer.body.metadata["reason"]


@needs("torch")
def test_torch_shares_memory_with_the_call():
    from lastbit.arrays.torch import TorchArrays

    stored = np.array([0x3F80, 0x4000], np.uint16)
    tensor = TorchArrays("cpu").give(stored, "bf16")
    assert tensor.tolist() == [1.0, 2.0]
    stored[0] = 0xBF80
    assert tensor.tolist() == [-1.0, 2.0]


@needs("torch")
def test_tensors_of_torch_from_a_kernel_that_names_numpy(start):
    child = start("""
        import torch, lastbit
        kernel = lastbit.Kernel("mixed", lse=False)
        @kernel.varlen
        def f(call):
            return torch.from_numpy(call.q.view("i2")).view(torch.bfloat16).requires_grad_()
        kernel.run()
    """)
    child.ask(frame.HELLO, {"versions": "1"})
    laid = Laid(plain({"formats": ["bf16"], "lse": False}))
    answer = child.ask(frame.CALL, *laid.request())
    np.testing.assert_array_equal(answer.body.tensors["o"].array, laid.q)


@needs("jax")
def test_jax(start):
    run(start, JAX)


@pytest.mark.parametrize("name", ["torch", "jax"])
@pytest.mark.parametrize("storage", ["f32", "f16", "bf16"])
def test_one_sequence(start, name, storage):
    if not installed(name):
        pytest.skip(f"{name} is not installed, or cannot be imported")
    child = start(ONE.format(name=name, module=name))
    child.ask(frame.HELLO, {"versions": "1"})
    laid = Laid(replace(plain({"formats": [storage], "lse": False}), form="varlen"))
    answer = child.ask(frame.CALL, *laid.request())
    assert answer.kind == frame.RESULT, answer.body.metadata
    np.testing.assert_array_equal(answer.body.tensors["o"].array, laid.q)


def test_anything_with_dlpack(start):
    child = start("""
        import numpy as np, lastbit
        kernel = lastbit.Kernel("dlpack", lse=False)
        class Foreign:
            def __init__(self, array): self.array = array
            def __dlpack__(self, **more): return self.array.__dlpack__(**more)
            def __dlpack_device__(self): return self.array.__dlpack_device__()
        class Odd(Foreign):
            def __dlpack__(self, **more): raise BufferError("no bf16 here")
        @kernel.varlen
        def f(call):
            return (Foreign if len(call.q) == 6 else Odd)(call.q)
        kernel.run()
    """)
    child.ask(frame.HELLO, {"versions": "1"})
    laid = Laid(plain({"lse": False}))
    answer = child.ask(frame.CALL, *laid.request())
    np.testing.assert_array_equal(answer.body.tensors["o"].array, laid.q)
    answer = child.ask(frame.CALL, *Laid(replace(plain({}), lengths=((5, 5),))).request())
    assert "over DLPack (no bf16 here)" in answer.body.metadata["reason"]


def test_a_library_that_is_missing_is_named(raw):
    text = """
        import sys
        sys.modules["cupy"] = None
        import lastbit
        kernel = lastbit.Kernel("c", arrays="cupy")
        kernel.varlen(lambda call: call.q)
        kernel.run()
    """
    code, answers, stderr = raw(text, b"")
    assert code == 1 and answers == [] and "cupy" in stderr
