"""Put an attention kernel written in Python under the lastbit harness.

See :class:`Kernel`, the README, and ``lastbit-check my_kernel.py``.
"""

from .pipe import claim_if_driven

claim_if_driven()  # before anything below, or anything that the kernel imports, can print

from .call import Attributes, Call, DenseCall, PagedCall, SequenceCall, Unsupported, VarlenCall  # noqa: E402
from .formats import narrow, widen  # noqa: E402
from .kernel import Kernel  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "Attributes",
    "Call",
    "DenseCall",
    "Kernel",
    "PagedCall",
    "SequenceCall",
    "Unsupported",
    "VarlenCall",
    "narrow",
    "widen",
]
