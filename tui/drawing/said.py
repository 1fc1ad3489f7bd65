"""One line of text, and how it is drawn."""

from __future__ import annotations

import msgspec


class Said(msgspec.Struct, frozen=True):
    """`look`: title, name, marks (below a name), good, bad, warn, rule or plain."""

    text: str
    look: str = "plain"
