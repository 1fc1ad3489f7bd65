"""What differs between two kernels that do the same work, in the words of their names."""

from __future__ import annotations

import re
from functools import cache

from fusetui.analysis.diff.names import decoded, shared_start
from fusetui.gpu.kernel_names.model import KernelName
from fusetui.text.cutting import clip
from fusetui.text.printable import printable

_FIELDS = (
    ("layout", "layout"),
    ("arch", ""),
    ("dtype_a", ""),
    ("dtype_b", "B in"),
    ("dtype_acc", "sums in"),
    ("dtype_out", "out"),
    ("dtype", ""),
    ("math", "math"),
    ("stages", "stages"),
    ("mma", "MMA"),
    ("mma_mn", "MMA"),
    ("align", "align"),
    ("cluster", "cluster"),
    ("split_k", "split-K"),
    ("stream_k", "stream-K"),
    ("role", "role"),
    ("epilogue", "epilogue"),
    ("pass_", "pass"),
    ("head_dim", "head dim"),
    ("causal", "causal"),
    ("functor", ""),
    ("vec", "vector"),
    ("kernel_category", ""),
    ("collective", ""),
    ("redop", ""),
    ("algo", ""),
    ("proto", ""),
    ("direction", ""),
)
"""Fields of a decoded name and what to call them; "" where the values speak for themselves."""

_WORDS = re.compile(r"\w+|\W")
_SHOWN = 5
_MAX_NAME = 40


@cache
def differences(a: str, b: str) -> str:
    """`tile 128x128 -> 128x256, layout nn -> tn`; short names where decoding finds no
    difference."""
    one, other = decoded(a), decoded(b)
    if one is not None and other is not None:
        found = _decoded_differences(one, other)
        if found:
            return ", ".join(found[:_SHOWN])
        if one.short != other.short:
            return f"{printable(one.short)} -> {printable(other.short)}"
        return _where_names_differ(a, b)
    shorts = _short(a, one), _short(b, other)
    return f"{shorts[0]} -> {shorts[1]}" if shorts[0] != shorts[1] else _where_names_differ(a, b)


def _decoded_differences(one: KernelName, other: KernelName) -> list[str]:
    """Only what both names determine: an unknown field is no difference."""
    found = []
    if one.family != other.family:
        found.append(f"{one.family} -> {other.family}")
    if one.op != other.op and one.op and other.op:
        found.append(f"{one.op} -> {other.op}")
    tiles = _tile(one), _tile(other)
    if all(tiles) and tiles[0] != tiles[1]:
        found.append(f"tile {tiles[0]} -> {tiles[1]}")
    for field, label in _FIELDS:
        before, after = getattr(one, field), getattr(other, field)
        if before != after and before is not None and after is not None:
            change = f"{printable(str(before))} -> {printable(str(after))}"
            found.append(f"{label} {change}".strip())
    return _without_echo(found)


def _without_echo(found: list[str]) -> list[str]:
    """The second operand's dtype adds nothing when it changes as the first one's does."""
    seen = set(found)
    return [
        text for text in dict.fromkeys(found) if not (text.startswith("B in ") and text[5:] in seen)
    ]


def _where_names_differ(a: str, b: str) -> str:
    """The stretch in which two names differ, in whole words."""
    words_a, words_b = _WORDS.findall(a), _WORDS.findall(b)
    first = shared_start(words_a, words_b)
    rest_a, rest_b = words_a[first:], words_b[first:]
    last = shared_start(rest_a[::-1], rest_b[::-1])
    before, after = ("".join(rest[: len(rest) - last]) for rest in (rest_a, rest_b))
    if max(len(before), len(after)) > _MAX_NAME:
        return "the decoded parts agree, the full names do not"
    return f"in its name: {printable(before) or 'nothing'} -> {printable(after) or 'nothing'}"


def _tile(name: KernelName) -> str:
    sizes = (name.tile_m, name.tile_n, name.tile_k)
    return "x".join(str(size) for size in sizes if size is not None)


def _short(name: str, known: KernelName | None) -> str:
    return clip(printable(known.short if known is not None else name), _MAX_NAME)
