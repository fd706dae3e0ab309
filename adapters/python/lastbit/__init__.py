"""Put an attention kernel written in Python under the lastbit harness.

See :class:`Kernel`, the README, and ``lastbit-check my_kernel.py``.
"""

from .pipe import claim_if_driven

claim_if_driven()  # before anything below, or anything that the kernel imports, can print

from .attributes import Attributes  # noqa: E402
from .call import Call, DenseCall, PagedCall, SequenceCall, Unsupported, VarlenCall  # noqa: E402
from .formats import narrow, presented, widen  # noqa: E402
from .kernel import Kernel  # noqa: E402

__version__ = "0.1.0"

bfloat16 = presented("bf16")
"""The numpy type of bf16 arrays: that of ``ml_dtypes``, or ``uint16`` (bit patterns) where it is not installed."""

__all__ = [
    "Attributes",
    "Call",
    "DenseCall",
    "Kernel",
    "PagedCall",
    "SequenceCall",
    "Unsupported",
    "VarlenCall",
    "bfloat16",
    "narrow",
    "widen",
]
