"""Bodies are safetensors, and what is none is refused."""

import numpy as np
import pytest
from wire import blob

from lastbit import frame
from lastbit.frame import Malformed, Tensor, decode


def test_a_body_reads_back():
    tensors = {
        "q": Tensor("bf16", np.arange(24, dtype=np.uint16).reshape(2, 3, 4)),
        "lengths": Tensor("i32", np.array([3, -1], np.int32)),
        "empty": Tensor("f32", np.zeros((0, 5), np.float32)),
        "k": Tensor("e4m3", np.arange(3, dtype=np.uint8)),
    }
    body = decode(memoryview(blob({"form": "varlen"}, tensors)))
    assert body.metadata == {"form": "varlen"}
    assert {name: tensor.dtype for name, tensor in body.tensors.items()} == {
        name: tensor.dtype for name, tensor in tensors.items()
    }
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(body.tensors[name].array, tensor.array)


def test_every_tensor_is_aligned_to_its_elements():
    tensors = {
        "a": Tensor("e4m3", np.zeros(3, np.uint8)),
        "b": Tensor("f16", np.zeros(1, np.float16)),
        "c": Tensor("f32", np.zeros(1, np.float32)),
    }
    for name, tensor in decode(memoryview(bytearray(blob({}, tensors)))).tensors.items():
        assert tensor.array.flags.aligned, name


def test_safetensors_reads_what_is_written_and_is_read():
    library = pytest.importorskip("safetensors.numpy")
    o = np.arange(12, dtype=np.float16).reshape(3, 2, 2)
    lse = np.arange(6, dtype=np.float32).reshape(3, 2)
    read = library.load(b"".join(frame.encode_result(Tensor("f16", o), Tensor("f32", lse))))
    np.testing.assert_array_equal(read["o"], o)
    np.testing.assert_array_equal(read["lse"], lse)
    body = decode(memoryview(library.save({"o": o, "lse": lse}, metadata={"form": "dense"})))
    assert body.metadata == {"form": "dense"}
    np.testing.assert_array_equal(body.tensors["o"].array, o)
    np.testing.assert_array_equal(body.tensors["lse"].array, lse)


def test_results_that_are_not_row_major_are_written_in_order():
    o = np.arange(6, dtype=np.float32).reshape(2, 3).T
    body = decode(memoryview(b"".join(frame.encode_result(Tensor("f32", o[..., None]), None))))
    np.testing.assert_array_equal(body.tensors["o"].array, o[..., None])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"1234567",
        (2**63).to_bytes(8, "little"),
        (5).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"{",
        (9).to_bytes(8, "little") + b'{"q": {}}',
        frame.padded(b'{"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
        frame.padded(b'{"q":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}') + bytes(8),
        frame.padded(b'{"q":{"dtype":"F32","shape":[-1],"data_offsets":[4,0]}}') + bytes(8),
        frame.padded(b'{"q":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}') + bytes(8),
        frame.padded(b'{"q":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}') + bytes(8),
        frame.padded(b"\xff"),
    ],
)
def test_what_is_no_body(body):
    with pytest.raises(Malformed):
        decode(memoryview(body))
