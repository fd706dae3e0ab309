"""The lastbit end of the protocol (docs/protocol.md), small: starts one adapter as a process and calls it."""

import json
import os
import struct
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np

HEADER = struct.Struct("<4sHHQQ")
HELLO, WELCOME, CALL, RESULT, UNSUPPORTED, FAILED, BYE = range(1, 8)
DTYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16), "I32": np.dtype("<i4")}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Refused(Exception):
    """The kernel said that it cannot do this."""


class KernelProcess:
    """One running adapter.

    path: the adapter. search: folders put in front of PYTHONPATH, such as that of the fakes. env: further variables.
    """

    def __init__(self, path, search=(), env=None):
        environment = dict(os.environ, **(env or {}))
        folders = [str(folder) for folder in search] + [environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        self.stderr = tempfile.TemporaryFile()
        self.child = subprocess.Popen(
            [sys.executable, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, env=environment
        )
        self.id = 0
        kind, metadata, _ = self.ask(HELLO, {"versions": "1"}, {})
        assert kind == WELCOME, metadata
        self.welcome = json.loads(metadata["kernel"])

    def ask(self, kind, metadata, tensors):
        """Sends one frame and reads the answer: its kind, metadata and tensors."""
        self.id += 1
        body = encode(metadata, tensors)
        try:
            self.child.stdin.write(HEADER.pack(b"LBT1", 1, kind, self.id, len(body)) + body)
            self.child.stdin.flush()
            magic, version, kind, answered, length = HEADER.unpack(self.read(HEADER.size))
        except BrokenPipeError:
            raise AssertionError(f"the kernel has ended:\n{self.tail()}") from None
        assert (magic, version, answered) == (b"LBT1", 1, self.id)
        return kind, *decode(self.read(length))

    def read(self, size):
        data = self.child.stdout.read(size)
        assert len(data) == size, f"the kernel has ended:\n{self.tail()}"
        return data

    def tail(self):
        self.child.wait()
        self.stderr.seek(0)
        return self.stderr.read()[-4000:].decode(errors="replace")

    def call(self, form, attributes, tensors, padding=None):
        """`o` and, if the kernel has one, `lse`. Raises Refused, or AssertionError with the kernel's trace."""
        metadata = {"form": form, "attributes": json.dumps(attributes)}
        if padding is not None:
            metadata["padding"] = padding
        kind, metadata, answer = self.ask(CALL, metadata, tensors)
        if kind == UNSUPPORTED:
            raise Refused(metadata["reason"])
        assert kind == RESULT, f"{metadata.get('reason')}\n{metadata.get('trace', '')}"
        return answer["o"], answer.get("lse")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.stdin.write(HEADER.pack(b"LBT1", 1, BYE, 0, 0))
            self.child.stdin.close()
        try:
            self.child.wait(timeout=60)
        finally:
            self.child.kill()
            self.child.wait()
            self.child.stdout.close()
            self.stderr.close()


def encode(metadata, tensors):
    """A safetensors blob: widest elements first, the header padded to a multiple of 8."""
    tensors = {name: np.ascontiguousarray(tensor).reshape(np.shape(tensor)) for name, tensor in tensors.items()}
    order = sorted(tensors, key=lambda name: -tensors[name].itemsize)
    header, offset, parts = {"__metadata__": metadata}, 0, []
    for name in order:
        tensor = tensors[name]
        at = [offset, offset + tensor.nbytes]
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": at}
        offset = at[1]
        parts.append(tensor.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def decode(body):
    """Metadata and tensors of a safetensors blob; nothing where there is no body."""
    if not body:
        return {}, {}
    (size,) = struct.unpack_from("<Q", body)
    header = json.loads(body[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(body[8 + size + begin : 8 + size + end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return metadata, tensors
