"""What a kernel is called in a table: its short name, as long as nothing is lost by it."""

from __future__ import annotations

from fusetui.gpu.kernel_names import short_name
from fusetui.gpu.kernel_names.record import MAX_SHORT
from fusetui.text.printable import printable
from fusetui.text.tables import Unseen


def kernel_label(name: str, width: int) -> str:
    """The short name, printable. Into a pipe a name goes whole where the short one may be cut."""
    short = short_name(name)
    is_cut = short.endswith("…") or len(short) >= MAX_SHORT
    return printable(name if is_cut and isinstance(width, Unseen) else short)
