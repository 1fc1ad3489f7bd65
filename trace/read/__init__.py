"""From the bytes of a trace to columns. `read` is the only entry point; the rest is private."""

from fusetui.trace.read.assemble import Raw
from fusetui.trace.read.reading import Callbacks, read

__all__ = ["Callbacks", "Raw", "read"]
