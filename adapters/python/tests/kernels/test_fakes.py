"""The fakes are worth something: they refuse what the libraries refuse."""

import sys
from pathlib import Path

import pytest
from adapters import cannot_import

if reason := cannot_import("torch"):
    pytest.skip(f"the fakes of GPU libraries: {reason}", allow_module_level=True)

import torch

FAKES = Path(__file__).parent / "fakes"


@pytest.fixture
def fakes(monkeypatch):
    """The fakes in place of the libraries, and out of the way afterwards."""
    names = ["flash_attn", "flash_attn_interface", "torch_npu", "exact"]
    monkeypatch.syspath_prepend(str(FAKES))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in names:
        sys.modules.pop(name, None)


def packed(dtype=torch.int32):
    q = torch.zeros(3, 2, 16, dtype=torch.bfloat16)
    return q, q, q, torch.tensor([0, 3], dtype=dtype), torch.tensor([0, 3], dtype=dtype)


def test_cu_seqlens_must_be_int32(fakes):
    import flash_attn

    flash_attn.flash_attn_varlen_func(*packed(), 3, 3, softmax_scale=1.0)
    with pytest.raises(AssertionError, match="int64"):
        flash_attn.flash_attn_varlen_func(*packed(torch.int64), 3, 3, softmax_scale=1.0)


def test_a_wrong_argument_name_is_an_error(fakes):
    import flash_attn_interface

    with pytest.raises(TypeError, match="block_table"):
        flash_attn_interface.flash_attn_varlen_func(*packed(), 3, 3, softmax_scale=1.0, block_table=None)


def test_a_page_of_16_is_too_small_for_flash_attention_2(fakes):
    import flash_attn

    cache = torch.zeros(1, 16, 2, 16, dtype=torch.bfloat16)
    one = torch.ones(1, dtype=torch.int32)
    with pytest.raises(AssertionError, match="divisible by 256"):
        flash_attn.flash_attn_with_kvcache(
            cache[:, :1], cache, cache, cache_seqlens=one, block_table=one[None] - 1, softmax_scale=1.0
        )


def test_lengths_of_npu_fusion_attention_are_cumulative(fakes):
    import torch_npu

    q = torch.zeros(6, 2, 16, dtype=torch.float16)
    torch_npu.npu_fusion_attention(q, q, q, 2, "TND", actual_seq_qlen=[3, 6], actual_seq_kvlen=[3, 6])
    with pytest.raises(AssertionError):
        torch_npu.npu_fusion_attention(q, q, q, 2, "TND", actual_seq_qlen=[3, 3], actual_seq_kvlen=[3, 3])
