"""``lastbit-check my_kernel.py``: a first look at a kernel, without lastbit itself.

It starts the script as the harness would and tries small calls of everything that the kernel declares against a reference in f64.
This is a smoke test, which finds wrong shapes, formats, masks and layouts in seconds; ``lastbit probe`` is what judges a kernel.
"""

from .command import main

__all__ = ["main"]
