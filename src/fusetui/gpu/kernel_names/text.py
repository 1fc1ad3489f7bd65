"""Short readable texts. Names are untrusted: only plain characters leave this module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MAX_SHORT: Final = 48

_UNSAFE = re.compile(r"[^ -Z\\^-~]")
_BRACKETS = {"[": "(", "]": ")"}


def plain(text: str) -> str:
    """Printable ASCII without square brackets, which terminal markup uses.

    >>> plain("a\\x1b[31mb")
    'a\\\\x1b(31mb'
    """
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return _BRACKETS.get(char) or char.encode("unicode_escape", "surrogatepass").decode("ascii")


def cut(text: str, mark: str) -> str:
    """At most MAX_SHORT characters; `mark` ends a text that was cut."""
    if len(text) <= MAX_SHORT:
        return text
    return text[: MAX_SHORT - len(mark)].rstrip() + mark


def safe(text: str) -> str:
    """A text of any origin as a short one: plain characters, at most MAX_SHORT."""
    head = text[: 2 * MAX_SHORT]
    if not (head.isascii() and head.isprintable()) or "[" in head or "]" in head:
        head = plain(head)
    return cut(head, "...")


def gemm_label(op: str, fields: Mapping[str, Any], *more: str | None) -> str:
    """One line for a matrix multiplication or a convolution: type, tile, layout, target.

    >>> gemm_label("gemm", {"dtype_a": "bf16", "tile_m": 128, "tile_n": 64, "layout": "tn"})
    'gemm bf16 128x64 tn'
    """
    get = fields.get
    stages = get("stages")
    words = [
        op,
        _types(get("dtype_a"), get("dtype_b"), get("dtype_acc"), get("dtype_out")),
        f"({get('math')})" if get("math") else None,
        tile_words(get("tile_m"), get("tile_n"), get("tile_k")),
        get("layout"),
        get("arch") or (get("arch_name") or "").lower(),
        get("epilogue"),
        f"s{stages}" if stages else None,
        *more,
    ]
    return " ".join([word for word in words if word])


def _types(a: str | None, b: str | None, acc: str | None, out: str | None) -> str | None:
    """As dtype_words; of unknown operands only what is known, the sums or the result.

    >>> _types(None, None, "fp32", "bf16"), _types(None, None, "fp32", None)
    ('->bf16', 'fp32')
    """
    if a is None and out is not None and out != acc:
        return f"->{out}"
    return dtype_words(a or acc, b, out)


def dtype_words(a: str | None, b: str | None, out: str | None) -> str | None:
    """`bf16`, `bf16*fp8` for different operands, `bf16->fp32` if the result has another type."""
    if a is None:
        return out
    operands = a if b is None or b == a else f"{a}*{b}"
    return operands if out is None or out == a else f"{operands}->{out}"


def tile_words(m: int | None, n: int | None, k: int | None) -> str | None:
    """`128x64x32` or `128x64`."""
    return "x".join([str(size) for size in (m, n, k) if size]) or None
