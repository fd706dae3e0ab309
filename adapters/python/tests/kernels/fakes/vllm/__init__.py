"""vLLM, recorded: its two attention entry points."""

__version__ = "fake"
