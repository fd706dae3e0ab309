"""vLLM, recorded: its two attention entry points."""

__version__ = "0.12.0+fake"
