"""The adapters, what each needs, and how to start it here."""

import subprocess
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).parent
KERNELS = HERE.parent.parent / "kernels"
PACKAGE = HERE.parent.parent


@dataclass(frozen=True)
class Adapter:
    """One file of `kernels/` in one of its ways to start."""

    name: str
    file: str
    needs: tuple
    env: dict = field(default_factory=dict, hash=False)
    fake: bool = False

    def missing(self):
        """Why it cannot be started here, or None."""
        return next(filter(None, map(cannot_import, self.needs)), None)

    def start(self):
        from client import KernelProcess

        search = [HERE / "fakes", PACKAGE] if self.fake else [PACKAGE]
        return KernelProcess(KERNELS / self.file, search, self.env)


@lru_cache
def cannot_import(module):
    """The last line of what Python says, or None where it can."""
    result = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True)
    return None if result.returncode == 0 else result.stderr.strip().splitlines()[-1]


CPU = {"LASTBIT_DEVICE": "cpu"}
RUN = [
    Adapter("numpy", "numpy_textbook.py", ("numpy",)),
    Adapter("torch-sdpa", "torch_sdpa.py", ("torch",)),
    Adapter("torch-eager", "torch_eager.py", ("torch",)),
    Adapter("torch-flex", "torch_flex.py", ("torch.nn.attention.flex_attention",)),
    Adapter("jax", "jax_dot_product_attention.py", ("jax",), {"JAX_PLATFORMS": "cpu"}),
    Adapter("onnxruntime-gqa", "onnxruntime_gqa.py", ("onnx", "onnxruntime")),
    Adapter("onnxruntime-attention", "onnxruntime_attention.py", ("onnx", "onnxruntime")),
    Adapter("triton", "triton_attention.py", ("torch", "triton"), CPU | {"TRITON_INTERPRET": "1"}),
]
RECORDED = [
    Adapter("flash-attention-2", "flash_attention.py", ("torch",), CPU, fake=True),
    Adapter("flash-attention-3", "flash_attention.py", ("torch",), CPU | {"LASTBIT_FA": "3"}, fake=True),
    Adapter("flashinfer", "flashinfer_batch_prefill.py", ("torch",), CPU, fake=True),
    Adapter("vllm-flash-2", "vllm_attention.py", ("torch",), CPU, fake=True),
    Adapter("vllm-flash-3", "vllm_attention.py", ("torch",), CPU | {"LASTBIT_FA": "3"}, fake=True),
    Adapter("vllm-triton", "vllm_attention.py", ("torch",), CPU | {"LASTBIT_VLLM": "triton"}, fake=True),
    Adapter("torch-npu", "ascend_torch_npu.py", ("torch",), CPU, fake=True),
]
