"""Text that fits a width."""

from __future__ import annotations

from collections.abc import Sequence


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """At most `width` characters, the last one an ellipsis when something was cut."""
    if len(text) <= width:
        return text
    return text[: max(0, width - len(ellipsis))] + ellipsis[:width]


def joined(parts: Sequence[str], width: int, between: str = "   ") -> str:
    """As many of the parts as fit; the first one always."""
    text = ""
    for part in parts:
        longer = f"{text}{between}{part}" if text else part
        if text and len(longer) > width:
            break
        text = longer
    return text
