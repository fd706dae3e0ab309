"""What is not a result: refusals, failures, wrong shapes and formats, writes outside; and what a process does at its ends."""

import json
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
from wire import HELLO, blob, packed

from lastbit import frame
from lastbit.check.child import Broken
from lastbit.check.problem import Laid
from lastbit.check.trials import plain

HEAD = """
import os, sys
import numpy as np, lastbit
kernel = lastbit.Kernel("k", lse={lse}, **{more})
@kernel.{form}
def attention(call{out}):
    shape = (*call.q.shape[:-1], call.d_v)
    {body}
kernel.run()
"""


def kernel(body: str, *, lse: bool = False, form: str = "varlen", out: str = "", **more) -> str:
    return HEAD.format(body=body, lse=lse, form=form, out=out, more=more)


def ask(start, text: str, storage: str = "f32", **changes):
    child = start(text)
    welcome = child.ask(frame.HELLO, {"versions": "1"})
    assert welcome.kind == frame.WELCOME
    problem = replace(plain({"formats": [storage]}), **changes)
    return child.ask(frame.CALL, *Laid(problem).request())


@pytest.mark.parametrize(
    ("body", "storage", "lse", "reason"),
    [
        ("return None", "f32", False, "attention returned None; return o, or (o, lse)"),
        ("return 1.5", "f32", False, "o is a float; return a numpy array"),
        ("return [[1.0]]", "f32", False, "o is a list; return a numpy array"),
        ("return np.zeros(shape[1:], np.float32)", "f32", False, "o has shape [2, 16], the call asks for [6, 2, 16]"),
        ("return np.zeros((2, 6, 16), np.float32)", "f32", False, "rows come before heads"),
        ("return np.zeros(shape)", "f32", False, "o is float64, the call asks for f32"),
        ("return np.zeros(shape, np.float32)", "bf16", False, "o is f32, the call asks for bf16: round it in the kernel"),
        ("return np.zeros(shape, np.float32)", "bf16", False, 'or declare the format as "bf16->f32"'),
        ("return np.zeros(shape, np.float16)", "bf16", False, "o is f16, the call asks for bf16"),
        ("return np.zeros(shape, np.float32)", "f32", True, "no lse was returned"),
        ("return np.zeros(shape, np.float32), np.zeros(shape[:-1], np.float32)", "f32", False, "declares lse=False"),
        ("return np.zeros(shape, np.float32), np.zeros(shape[:-1])", "f32", True, "lse is float64, the call asks for f32"),
        ("return np.zeros(shape, np.float32), np.zeros(shape[-2::-1], np.float32)", "f32", True, "it is transposed"),
        ("return np.zeros(shape, np.float32), 1, 2", "f32", True, "attention returned 3 things"),
    ],
)
def test_results_that_are_not_what_was_asked_for(start, body, storage, lse, reason):
    answer = ask(start, kernel(body, lse=lse), storage)
    assert answer.kind == frame.FAILED
    assert reason in answer.body.metadata["reason"]


def test_an_exception_is_a_failure_with_its_trace_and_the_next_call_is_answered(start):
    child = start(kernel("if len(call.q) == 5: raise KeyError('q5\\nmore')\n    return np.zeros(shape, np.float32)"))
    child.ask(frame.HELLO, {"versions": "1"})
    base = plain({})
    failed = child.ask(frame.CALL, *Laid(replace(base, lengths=((5, 5),))).request())
    assert failed.kind == frame.FAILED
    assert failed.body.metadata["reason"].startswith("KeyError: ") and "\n" not in failed.body.metadata["reason"]
    assert "in attention" in failed.body.metadata["trace"] and len(failed.body.metadata["trace"]) <= 8192
    assert "breakage" not in failed.body.metadata
    assert child.ask(frame.CALL, *Laid(base).request()).kind == frame.RESULT


def test_a_deep_trace_is_bounded(start):
    body = "def deep(n): return deep(n - 1) if n else [].pop()\n    deep(900)"
    answer = ask(start, kernel(body))
    assert answer.kind == frame.FAILED and len(answer.body.metadata["trace"]) <= 8192
    assert len(ask(start, kernel("raise ValueError('x' * 100000)")).body.metadata["reason"]) < 600


@pytest.mark.parametrize(
    ("body", "breakage"),
    [
        ("raise MemoryError", "out_of_memory"),
        ("raise RuntimeError('[enforce fail] DefaultCPUAllocator: not enough memory')", "out_of_memory"),
        ("raise RuntimeError('CUDA error: an illegal memory access was encountered')", "device_error"),
        ("raise type('OutOfMemoryError', (RuntimeError,), {})('CUDA out of memory. Tried to allocate 2 GiB')", None),
        ("raise RuntimeError('bad argument')", None),
    ],
)
def test_breakages(start, body, breakage):
    assert ask(start, kernel(body)).body.metadata.get("breakage") == breakage


def test_a_refusal(start):
    answer = ask(start, kernel("raise lastbit.Unsupported('only on Tuesdays')"))
    assert (answer.kind, answer.body.metadata["reason"]) == (frame.UNSUPPORTED, "only on Tuesdays")


def test_what_is_not_declared_is_refused(start):
    child = start(kernel("return np.zeros(shape, np.float32)", features=["causal"], formats=["f32", "bf16->f32"]))
    child.ask(frame.HELLO, {"versions": "1"})
    base = plain({})

    def reason(problem, change=lambda text: text):
        metadata, tensors = Laid(problem).request()
        metadata["attributes"] = change(metadata["attributes"])
        answer = child.ask(frame.CALL, metadata, tensors)
        return answer.body.metadata["reason"] if answer.kind == frame.UNSUPPORTED else answer.kind

    assert reason(base) == frame.RESULT
    assert reason(replace(base, storage="bf16")) == frame.RESULT  # and o in f32
    assert reason(base.with_attributes(window_left=1)) == "does not declare window"
    assert reason(replace(base, sinks=True)) == "does not declare sinks"
    assert reason(replace(base, storage="f16").with_attributes(out_dtype="f16")) == "does not declare f16"
    assert reason(replace(base, form="paged")) == "does not answer paged calls"
    assert reason(replace(base, form="dense_left")) == "does not answer dense_left calls"
    assert "tree" in reason(base, lambda text: text.replace('"context"', '"tree": 1, "context"'))


@pytest.mark.parametrize("storage", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("out[...] = 0; lse_out[...] = 0", None),
        ("out[...] = 0; lse_out[...] = 0; beyond(out, 1)[-1] = 1", "out: 1 elements after its end, up to 1 away"),
        ("out[...] = 0; lse_out[...] = 0; beyond(out, 7)[-7:] = 1", "out: 7 elements after its end, up to 7 away"),
        ("out[...] = 0; lse_out[...] = 0; before(lse_out, 2)[0] = 1", "lse_out: 1 elements before its start, up to 2 away"),
    ],
)
def test_guards(start, storage, body, place):
    text = (
        """
import numpy as np, lastbit
kernel = lastbit.Kernel("k")
def beyond(array, n):
    return np.lib.stride_tricks.as_strided(array.reshape(-1), (array.size + n,), (array.itemsize,))
def before(array, n):
    whole = array
    while whole.base is not None:
        whole = whole.base
    first = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return whole.view(np.uint8)[first - n * array.itemsize : first].view(array.dtype)
@kernel.varlen
def attention(call, *, out, lse_out):
    """
        + body
        + "\nkernel.run()\n"
    )
    child = start(text)
    assert '"guarded": true' in child.ask(frame.HELLO, {"versions": "1"}).body.metadata["kernel"]
    answer = child.ask(frame.CALL, *Laid(plain({"formats": [storage]})).request())
    if place is None:
        assert answer.kind == frame.RESULT, answer.body.metadata
        assert not answer.body.tensors["o"].array.any() and not answer.body.tensors["lse"].array.any()
    else:
        assert answer.body.metadata["breakage"] == "wrote_outside"
        assert answer.body.metadata["reason"] == f"attention wrote outside {place}"


@pytest.mark.parametrize("form", ["varlen", "sequence"])
@pytest.mark.parametrize(("storage", "canary"), [("f32", 0xFFC0002A), ("f16", 0xFE2A), ("bf16", 0xFFEA)])
def test_what_is_not_written_keeps_the_canary(start, form, storage, canary):
    answer = ask(start, kernel("out[..., 1:] = 3", form=form, out=", out"), storage)
    assert answer.kind == frame.RESULT, answer.body.metadata
    o = answer.body.tensors["o"].array
    pattern = o.view(f"u{o.itemsize}")
    assert (pattern[..., 0] == canary).all() and not (pattern[..., 1:] == canary).any()


def test_a_dirty_workspace_shows_what_was_not_initialised(start):
    child = start(kernel("return np.empty(shape, np.float32)"))
    assert '"workspace": ["clean", "dirty"]' in child.ask(frame.HELLO, {"versions": "1"}).body.metadata["kernel"]
    answer = child.ask(frame.CALL, *Laid(replace(plain({}), knobs={"workspace": "dirty"})).request())
    assert np.isnan(answer.body.tensors["o"].array).all()


NOISY = """
print("before the package")
import os, subprocess, sys
import lastbit, numpy as np
print("at import", flush=True)
os.write(1, b"below Python\\n")
kernel = lastbit.Kernel("noisy", lse=False)
@kernel.varlen
def f(call):
    print("in a call", flush=True)
    os.system("echo from a shell; cat")
    return np.zeros(call.q.shape, np.float32)
kernel.run()
"""


PLAIN = kernel("return np.zeros(shape, np.float32)")


def call_frame(number: int, problem=None) -> bytes:
    return packed(frame.CALL, number, blob(*Laid(problem or plain({})).request()))


def test_noise_goes_to_stderr_and_programs_do_not_eat_the_input(raw):
    code, answers, stderr = raw(NOISY, HELLO + call_frame(1) + call_frame(2) + packed(frame.BYE, 3))
    assert code == 0
    assert [(kind, number) for kind, number, _ in answers] == [(frame.WELCOME, 0), (frame.RESULT, 1), (frame.RESULT, 2)]
    for text in ("before the package", "at import", "below Python", "in a call", "from a shell"):
        assert text in stderr


def test_without_the_variable_stdout_is_taken_by_run(raw):
    text = kernel("print('in a call', flush=True); return np.zeros(shape, np.float32)")
    code, answers, stderr = raw(text, HELLO + call_frame(1), LASTBIT_KERNEL="")
    assert code == 0 and [kind for kind, _, _ in answers] == [frame.WELCOME, frame.RESULT] and "in a call" in stderr


@pytest.mark.parametrize(
    ("sent", "code", "kinds"),
    [
        (b"", 0, []),
        (HELLO[:10], 0, []),
        (HELLO[:30], 0, []),
        (packed(frame.BYE, 5), 0, []),
        (packed(frame.HELLO, 5, blob({"versions": "2,3"})), 3, [frame.FAILED]),
        (packed(frame.HELLO, 5, blob({})), 3, [frame.FAILED]),
        (packed(frame.HELLO, 5, blob({"versions": "1"}), version=2), 3, [frame.FAILED]),
        (packed(frame.HELLO, 5, blob({"versions": "1"}), magic=b"HTTP"), 3, [frame.FAILED]),
        (HELLO + packed(frame.CALL, 5, b"", length=10 << 30), 3, [frame.WELCOME, frame.FAILED]),
        (HELLO + packed(99, 5, blob({})), 0, [frame.WELCOME, frame.FAILED]),
        (HELLO + packed(frame.CALL, 5, b"rubbish"), 0, [frame.WELCOME, frame.FAILED]),
        (HELLO + packed(frame.CALL, 5, blob({"form": "varlen"})), 0, [frame.WELCOME, frame.FAILED]),
        (HELLO + packed(frame.CALL | frame.SHARED, 5, b"", length=100), 0, [frame.WELCOME, frame.FAILED]),
    ],
)
def test_frames_that_are_none(raw, sent, code, kinds):
    ended, answers, stderr = raw(PLAIN, sent)
    assert "Traceback" not in stderr, stderr
    assert (ended, [kind for kind, _, _ in answers]) == (code, kinds)
    assert all(number == 5 for kind, number, _ in answers if kind == frame.FAILED)


@pytest.mark.parametrize(
    "change",
    [
        lambda m, t: t.pop("cu_seqlens_q"),
        lambda m, t: t.pop("k"),
        lambda m, t: t["cu_seqlens_q"].array.__setitem__(1, 99),
        lambda m, t: t["cu_seqlens_k"].array.__setitem__(0, 1),
        lambda m, t: m.update(attributes="{"),
        lambda m, t: m.update(attributes="[]"),
        lambda m, t: m.update(attributes="{}"),
    ],
)
def test_calls_that_do_not_hold_together_fail_and_the_next_is_answered(start, change):
    child = start(PLAIN)
    child.ask(frame.HELLO, {"versions": "1"})
    metadata, tensors = Laid(plain({})).request()
    change(metadata, tensors)
    assert child.ask(frame.CALL, metadata, tensors).kind == frame.FAILED
    assert child.ask(frame.CALL, *Laid(plain({})).request()).kind == frame.RESULT


def test_an_answer_is_written_before_the_next_call_is_run(raw):
    """A crash must not take the answers of calls before it along: another case would be blamed."""
    text = kernel("if len(call.q) == 5: os._exit(9)\n    return np.zeros(shape, np.float32)")
    code, answers, _ = raw(text, HELLO + call_frame(1) + call_frame(2) + call_frame(3, replace(plain({}), lengths=((5, 5),))))
    assert code == 9
    assert [(kind, number) for kind, number, _ in answers] == [(frame.WELCOME, 0), (frame.RESULT, 1), (frame.RESULT, 2)]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_crash_leaves_the_stack_and_what_was_printed_on_stderr(start):
    child = start(kernel("print('last words'); import ctypes; ctypes.string_at(0)"))
    child.ask(frame.HELLO, {"versions": "1"})
    with pytest.raises(Broken) as found:
        child.ask(frame.CALL, *Laid(plain({})).request())
    for text in (f"signal {int(signal.SIGSEGV)}", "last words", "Segmentation fault", "in attention"):
        assert text in str(found.value)


def test_bodies_larger_than_any_buffer(start):
    child = start(kernel("return call.q[:, :, :16] + call.k[:1, :1, :16] * 0"))
    child.ask(frame.HELLO, {"versions": "1"})
    problem = replace(plain({}), lengths=((30_000, 9),))
    laid = Laid(problem)
    answer = child.ask(frame.CALL, *laid.request())
    np.testing.assert_array_equal(answer.body.tensors["o"].array, laid.q)


def test_shared_memory(raw, tmp_path):
    """A call whose body is in the file is answered there, unless the answer is too long for its region."""
    path, request_bytes = tmp_path / "regions", 1 << 16
    laid = Laid(plain({}))
    sent = blob(*laid.request())
    size = 64 * 2 + laid.q.nbytes
    for answer_bytes, kind in ((size + 1000, frame.RESULT | frame.SHARED), (size // 2, frame.RESULT)):
        path.write_bytes(sent + bytes(request_bytes - len(sent) + answer_bytes))
        regions = json.dumps({"path": str(path), "request_bytes": request_bytes, "answer_bytes": answer_bytes})
        hello = packed(frame.HELLO, 0, blob({"versions": "1", "shared_memory": regions}))
        call = packed(frame.CALL | frame.SHARED, 1, length=len(sent))
        code, answers, stderr = raw(kernel("return call.q"), hello + call + call_frame(2))
        assert code == 0, stderr
        assert json.loads(answers[0][2].metadata["kernel"])["shared_memory"] is True
        assert [(kind, number) for kind, number, _ in answers[1:]] == [(kind, 1), (frame.RESULT, 2)]
        body = answers[1][2]
        if kind & frame.SHARED:
            memory = path.read_bytes()[request_bytes:][: int(body.metadata["length"])]
            body = frame.decode(memoryview(memory))
        np.testing.assert_array_equal(body.tensors["o"].array, laid.q)


def test_shared_memory_that_cannot_be_mapped_is_done_without(raw, tmp_path):
    regions = json.dumps({"path": str(tmp_path / "nowhere"), "request_bytes": 1, "answer_bytes": 1})
    code, answers, stderr = raw(PLAIN, packed(frame.HELLO, 0, blob({"versions": "1", "shared_memory": regions})) + call_frame(1))
    assert json.loads(answers[0][2].metadata["kernel"])["shared_memory"] is False
    assert [kind for kind, _, _ in answers] == [frame.WELCOME, frame.RESULT] and "no shared memory" in stderr and code == 0
