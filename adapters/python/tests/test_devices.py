"""What concerns devices, without one: errors that stay, waiting, and outputs in a device's memory."""

import os
import sys
import types

import numpy as np
import pytest
from test_libraries import needs
from wire import blob, frames, packed

import lastbit
from lastbit import arrays, frame
from lastbit.arrays.numpy import NumpyArrays
from lastbit.check.problem import Laid
from lastbit.check.trials import plain
from lastbit.formats import CANARY, bits
from lastbit.pipe import Pipe
from lastbit.serve import Server


class Device(NumpyArrays):
    """numpy as a device that may be lost."""

    name = "torch"
    device = "cuda"
    lost = False

    def __init__(self):
        self.waited = 0

    def wait(self, results):
        self.waited += 1

    def alive(self):
        return not self.lost


@pytest.fixture
def device(monkeypatch):
    made = Device()
    monkeypatch.setattr(arrays, "of", lambda name, device: made)
    return made


def answer(kernel: lastbit.Kernel) -> tuple[int, dict[str, str]]:
    """One call in this process: the answer's kind and scalars."""
    source, sink = os.pipe(), os.pipe()
    os.write(source[1], packed(frame.CALL, 1, blob(*Laid(plain({"lse": False})).request())))
    os.close(source[1])
    server = Server(kernel, Pipe(source[0], sink[1]))
    assert server.run() == 0
    os.close(source[0])
    os.close(sink[1])
    with os.fdopen(sink[0], "rb") as stream:
        ((kind, _, body),) = frames(stream.read())
    return kind, dict(body.metadata)


@pytest.mark.parametrize(("lost", "breakage"), [(True, "device_error"), (False, None)])
def test_an_exception_is_a_device_error_if_the_device_is_lost(device, lost, breakage):
    device.lost = lost
    kernel = lastbit.Kernel("k", arrays="torch", device="cuda", lse=False)

    @kernel.varlen
    def f(call):
        raise RuntimeError("unspecified launch failure")

    kind, told = answer(kernel)
    assert kind == frame.FAILED and told.get("breakage") == breakage


def test_out_of_memory_of_a_device_is_a_plain_failure(device):
    device.lost = True
    kernel = lastbit.Kernel("k", arrays="torch", device="cuda", lse=False)

    @kernel.varlen
    def f(call):
        raise type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")

    assert "breakage" not in answer(kernel)[1]


def test_every_call_is_waited_for(device):
    done = []
    kernel = lastbit.Kernel("k", arrays="torch", device="cuda", lse=False, synchronize=lambda: done.append(1))
    kernel.varlen(lambda call: call.q)
    kind, _ = answer(kernel)
    assert kind == frame.RESULT and done == [1] and device.waited == 1


def test_an_error_that_shows_when_waiting_is_a_failure(device):
    def late():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    device.lost = True
    kernel = lastbit.Kernel("k", arrays="torch", device="cuda", lse=False, synchronize=late)
    kernel.varlen(lambda call: call.q)
    kind, told = answer(kernel)
    assert kind == frame.FAILED and told["breakage"] == "device_error" and told["reason"].startswith("RuntimeError: CUDA error")


@needs("torch")
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_guarded_outputs_in_memory_of_torch(dtype):
    """``cpu:0`` takes the way of devices: one block of torch's own memory."""
    from lastbit.arrays.torch import TorchArrays
    from lastbit.results import stored

    library = TorchArrays("cpu:0")
    out, look = library.guarded((3, 2, 5), dtype)
    assert look() is None
    found, array = stored(out, "o")
    assert found == dtype and array.shape == (3, 2, 5) and (bits(array) == CANARY[dtype]).all()
    out.fill_(1.0)
    assert look() is None
    whole = out.as_strided((32,), (1,), out.storage_offset() - 1)
    whole[0] = 0.0
    assert look() == "1 elements before its start, up to 1 away"
    whole[31] = 0.0
    assert look() == "1 elements before its start, up to 1 away and 1 elements after its end, up to 1 away"
    assert library.index(np.arange(3)).tolist() == [0, 1, 2] and library.alive()


def test_cupy_against_a_fake_of_it(monkeypatch):
    """The functions of CuPy that are called, as its documentation has them; numpy stands in for them. Not run on a device."""
    runtime = types.SimpleNamespace(getDeviceProperties=lambda n: {"name": b"a device"}, runtimeGetVersion=lambda: 13000)
    used = []

    class Handle:
        def __init__(self, number):
            self.number = number

        def use(self):
            used.append(self.number)

        def synchronize(self):
            used.append("waited")

    fake = types.ModuleType("cupy")
    for name in ("asarray", "concatenate", "zeros", "full", "flatnonzero", "ones"):
        setattr(fake, name, getattr(np, name))
    fake.asnumpy = np.asarray
    fake.cuda = types.SimpleNamespace(Device=Handle, runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    library = arrays.of("cupy", "cuda:1")
    out, look = library.guarded((2, 3), "bf16")
    assert (bits(out) == CANARY["bf16"]).all() and look() is None
    np.lib.stride_tricks.as_strided(out.reshape(-1), (7,), (2,))[6] = 0
    assert look() == "1 elements after its end, up to 1 away"
    library.wait([out])
    assert used == [1, "waited"] and library.dirty([16]) and library.alive()
    assert library.details() == {"device_name": "a device", "cuda": "13000"}
