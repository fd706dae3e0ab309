"""Spreads the shards of a lastbit job over a Ray cluster, runs those of a lost worker again, and joins all into one result."""

__version__ = "0.1.0"
