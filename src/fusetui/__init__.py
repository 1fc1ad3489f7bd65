"""fusetui: where the time of a PyTorch program went, in a terminal."""

__version__ = "0.1.0"
