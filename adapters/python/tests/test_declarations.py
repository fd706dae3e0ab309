"""What a kernel declares is checked where it is declared."""

import json

import pytest

import lastbit
from lastbit.arrays.numpy import NumpyArrays


def test_misspelled_declarations_name_the_nearest():
    for wrong, text in [
        ({"features": ["casual"]}, "feature 'casual': did you mean 'causal'?"),
        ({"formats": ["bfloat16"]}, "bf16"),
        ({"formats": ["bf16->f64"]}, "'f64'"),
        ({"formats": "bf16"}, "give a list"),
        ({"features": []}, "the list of features is empty"),
        ({"formats": []}, "the list of formats is empty"),
        ({"page_sizes": []}, "the list of page sizes is empty"),
        ({"head_dims": []}, "the list of head dims is empty"),
        ({"knobs": {"num_splits": [1, "1"]}}, "there once"),
        ({"forms": ["varlen", "page"]}, "did you mean 'paged'?"),
        ({"arrays": "pytorch"}, "did you mean 'torch'?"),
        ({"conventions": {"lse_base": "10"}}, "one of e, 2"),
        ({"conventions": {"lsebase": "2"}}, "did you mean 'lse_base'?"),
        ({"knobs": {"num_splits": []}}, "a list of values"),
        ({"knobs": {"num splits": ["1"]}}, "'num splits'"),
        ({"knobs": {"num_splits": "12"}}, "a list"),
        ({"head_dims": {"max": 64, "multiple": 8}}, "did you mean 'multiple_of'?"),
        ({"head_dims": {"multiple_of": 8}}, "needs a max"),
    ]:
        with pytest.raises(ValueError) as found:
            lastbit.Kernel("k", **wrong)
        assert text in str(found.value)


def kernel(**more) -> lastbit.Kernel:
    made = lastbit.Kernel("k", **more)
    made.varlen(lambda call: call.q)
    return made


def test_the_welcome():
    made = kernel(
        head_dims=[64, (192, 128)],
        page_sizes=[16],
        max_rows=100,
        ragged=False,
        lse=False,
        conventions={"anchor": "top_left"},
        compiles=True,
    )
    told = made.welcome(NumpyArrays(), {"n": ["1"]}, True)
    assert {key: value for key, value in told.items() if key != "identity"} == {
        "shared_memory": True,
        "lse": False,
        "guarded": False,
        "compiles": True,
        "forms": ["varlen"],
        "head_dims": [[64, 64], [192, 128]],
        "page_sizes": [16],
        "max_rows": 100,
        "empty_rows": True,
        "empty_sequences": True,
        "ragged": False,
        "knobs": {"n": ["1"]},
        "conventions": {"anchor": "top_left"},
    }
    assert json.dumps(told)


def test_forms_follow_the_decorated_functions():
    assert kernel().forms() == ["varlen"]
    made = kernel()
    made.paged(lambda call: call.q)
    assert made.forms() == ["varlen", "paged", "contiguous"]
    made = lastbit.Kernel("k", forms=["dense_right", "paged"])
    made.sequence(lambda call: call.q)
    assert made.forms() == ["dense_right", "paged"]
    with pytest.raises(ValueError, match="names paged"):
        kernel(forms=["varlen", "paged"]).forms()
    with pytest.raises(ValueError, match="no function is decorated"):
        lastbit.Kernel("k").forms()
    with pytest.raises(ValueError, match="two functions for varlen"):
        made = kernel()
        made.varlen(lambda call: call.k)


def test_a_function_of_a_form_goes_before_that_of_one_sequence():
    made = lastbit.Kernel("k")
    one = made.sequence(lambda call: call.q)
    packed = made.varlen(lambda call: call.q)
    assert made.function_of("varlen") == ("varlen", packed)
    assert made.function_of("contiguous") == ("sequence", one)


def test_guarded_means_every_output_of_every_function():
    def with_out(call, *, out): ...

    def with_both(call, out, lse_out): ...

    for lse, functions, guarded in [
        (False, [with_out], True),
        (True, [with_out], False),
        (True, [with_both], True),
        (False, [with_out, lambda call: call.q], False),
    ]:
        made = lastbit.Kernel("k", lse=lse)
        for form, function in zip(("varlen", "paged"), functions):
            getattr(made, form)(function)
        assert made.guarded() is guarded


def test_a_knob_of_the_kernels_own_called_workspace_is_left_alone(start):
    child = start("""
        import lastbit
        kernel = lastbit.Kernel("k", knobs={"workspace": ["32", "64"]}, lse=False)
        kernel.varlen(lambda call: call.q)
        kernel.run()
    """)
    told = json.loads(child.ask(1, {"versions": "1"}).body.metadata["kernel"])
    assert told["knobs"] == {"workspace": ["32", "64"]}
