"""Every call form through a process, with numpy kernels against the reference in f64."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lastbit import frame
from lastbit.check.problem import Laid
from lastbit.check.trials import plain

TEXTBOOK = Path(__file__).resolve().parent.parent / "kernels" / "numpy_textbook.py"

FORMS = ("varlen", "dense_left", "dense_right", "paged", "contiguous")

# One function for each form, from the pieces that calls offer to kernel authors.
BY_FORM = """
    import numpy as np
    import lastbit

    kernel = lastbit.Kernel("by-form", features=["causal", "grouped_heads", "not_causal", "window"])

    def one(call, q, k, v):
        q, k, v = (lastbit.widen(x, call.q_dtype) for x in (q, k, v))
        k, v = np.repeat(k, call.gqa, 1), np.repeat(v, call.gqa, 1)
        s = np.einsum("qhd,khd->hqk", q, k) * np.float32(call.softmax_scale)
        s = np.where(call.mask(len(q), len(k)), s, np.float32(-np.inf))
        m = s.max(-1, keepdims=True, initial=np.float32(-1e30))
        p = np.exp(s - m)
        l = p.sum(-1, keepdims=True)
        o = np.einsum("hqk,khd->qhd", p / np.where(l == 0, 1, l), v)
        with np.errstate(divide="ignore"):
            lse = np.log(l) + m
        return lastbit.narrow(o.astype(np.float32), call.out_dtype), lse[..., 0].T.astype(np.float32)

    @kernel.varlen
    @kernel.paged
    def packed(call):
        o, lse = zip(*(one(call, q, k, v) for q, k, v in call.sequences()))
        return call.assemble(o, lse)

    @kernel.dense
    def dense(call):
        assert call.padded_mask().shape == (call.batch, call.seq_q, call.seq_kv)
        assert call.padded_mask().sum() == sum(call.mask(*n).sum() for n in zip(call.q_lens, call.kv_lens))
        o, lse = zip(*(one(call, q, k, v) for q, k, v in call.sequences()))
        return call.assemble(o, lse)

    if __name__ == "__main__":
        kernel.run()
"""


def problems(form: str, storage: str):
    """Shapes that catch a wrong gather: unlike lengths, several pages, no rows, no keys."""
    base = replace(plain({"formats": [storage]}), form=form, lengths=((5, 9), (0, 3), (1, 7), (2, 0), (3, 11)), page_size=4)
    grouped = base.with_attributes(q_heads=4, kv_heads=2)
    return [base, grouped, grouped.with_attributes(causal=None, window_left=2, window_right=1), replace(base, page_size=1)]


@pytest.mark.parametrize("kernel", ["textbook", "by form"])
@pytest.mark.parametrize("storage", ["f32", "f16", "bf16"])
def test_every_form_gives_the_reference(start, kernel, storage):
    child = start(TEXTBOOK if kernel == "textbook" else BY_FORM)
    answer = child.ask(frame.HELLO, {"versions": "1"})
    assert answer.kind == frame.WELCOME
    for form in FORMS:
        for problem in problems(form, storage):
            laid = Laid(problem)
            answer = child.ask(frame.CALL, *laid.request())
            assert answer.kind == frame.RESULT, answer.body.metadata
            share, wrong = laid.look(answer.body, {}, True)
            assert wrong is None, (form, wrong)
            assert share > 0
    assert child.end() is None


def test_forms_of_one_problem_agree_bit_for_bit(start):
    child = start(TEXTBOOK)
    child.ask(frame.HELLO, {"versions": "1"})
    seen = set()
    for form in FORMS:
        problem = replace(plain({}), form=form, lengths=((4, 9), (4, 9)))
        answer = child.ask(frame.CALL, *Laid(problem).request())
        seen.add(answer.body.tensors["o"].array.tobytes())
    assert len(seen) == 1


def test_scales_are_read_as_f32(start):
    child = start("""
        import numpy as np, lastbit
        kernel = lastbit.Kernel("scales", lse=False)
        @kernel.varlen
        def f(call):
            assert call.softmax_scale == float(np.float32(call.softmax_scale)) and call.softcap == float(np.float32(0.1))
            assert call.softmax_scale != 0.1
            return np.zeros(call.q.shape, np.float32)
        kernel.run()
    """)
    child.ask(frame.HELLO, {"versions": "1"})
    problem = replace(plain({"lse": False}), form="varlen")
    metadata, tensors = Laid(problem).request()
    metadata["attributes"] = metadata["attributes"].replace("0.25", "0.1").replace('"softcap": null', '"softcap": 0.1')
    assert child.ask(frame.CALL, metadata, tensors).kind == frame.RESULT


def test_prefix_lens_knobs_and_bucket_padding_arrive(start):
    child = start("""
        import numpy as np, lastbit
        kernel = lastbit.Kernel("facts", lse=False, knobs={"num_splits": [1, 2, 4], "layout": ["HND", "NHD"]})
        @kernel.sequence
        def f(call):
            assert dict(call.knobs) == {"num_splits": "4", "layout": "HND"}, call.knobs
            return np.full((call.rows, call.q_heads, call.d_v), 10 * call.prefix_len + call.keys, np.float32)
        kernel.run()
    """)
    child.ask(frame.HELLO, {"versions": "1"})
    problem = replace(plain({"lse": False}), form="paged", lengths=((1, 6), (1, 0)), knobs={"num_splits": "4"})
    metadata, tensors = Laid(problem).request()
    tensors["prefix_lens"].array[:] = [4, 0]
    answer = child.ask(frame.CALL, metadata, tensors)
    assert answer.kind == frame.RESULT, answer.body.metadata
    assert answer.body.tensors["o"].array[:, 0, 0].tolist() == [46, 0]


def test_formats_without_ml_dtypes_are_bit_patterns(start):
    child = start("""
        import sys
        sys.modules["ml_dtypes"] = None
        import numpy as np, lastbit
        kernel = lastbit.Kernel("plain", lse=False)
        @kernel.varlen
        def f(call):
            assert call.q.dtype == np.uint16 and call.k.dtype == np.uint8 and call.k_dtype == "e4m3", (call.q.dtype, call.k.dtype)
            assert lastbit.bfloat16 == np.uint16
            return lastbit.narrow(lastbit.widen(call.q, "bf16"), "bf16")
        kernel.run()
    """)
    child.ask(frame.HELLO, {"versions": "1"})
    laid = Laid(replace(plain({"formats": ["bf16"], "lse": False}), form="varlen", kv="e4m3"))
    answer = child.ask(frame.CALL, *laid.request())
    assert answer.kind == frame.RESULT, answer.body.metadata
    np.testing.assert_array_equal(answer.body.tensors["o"].array, laid.q)


def test_sequence_without_widening_sees_the_formats_of_the_call(start):
    child = start("""
        import numpy as np, lastbit
        kernel = lastbit.Kernel("as-stored", lse=False)
        @kernel.sequence(widen=False)
        def f(call):
            assert call.q.dtype == lastbit.bfloat16
            return call.q if call.rows > 1 else call.q.astype(np.float32)
        kernel.run()
    """)
    child.ask(frame.HELLO, {"versions": "1"})
    base = plain({"formats": ["bf16"], "lse": False})
    laid = Laid(replace(base, form="dense_left", lengths=((2, 3), (2, 5))))
    answer = child.ask(frame.CALL, *laid.request())
    np.testing.assert_array_equal(answer.body.tensors["o"].array.reshape(laid.q.shape), laid.q)
    answer = child.ask(frame.CALL, *Laid(replace(base, lengths=((1, 3),))).request())
    assert answer.kind == frame.FAILED
