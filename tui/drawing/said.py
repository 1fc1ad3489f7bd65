"""One line of text, and how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fusetui.text.cutting import ELLIPSIS


class Said(msgspec.Struct, frozen=True):
    """`look`: title, name, marks (below a name), good, bad, warn, rule or plain."""

    text: str
    look: str = "plain"


def cut(lines: Sequence[Said], height: int, ellipsis: str = ELLIPSIS) -> Sequence[Said]:
    """As many as there is room for; the last one shows that there are more."""
    if len(lines) <= height or not height:
        return lines
    last = lines[height - 1]
    text = last.text[: -len(ellipsis)] if len(last.text) > len(ellipsis) else last.text
    return [*lines[: height - 1], Said(f"{text.rstrip()}{ellipsis}", last.look)]
