"""Splitting the operator list of a fused kernel: `_unsafe_view_gelu_mul` has three operators.

Inductor joins the sorted, distinct operator names with underscores (pytorch/pytorch
torch/_inductor/utils.py, get_fused_kernel_name). The names contain underscores themselves, so the
list is split with the help of ATen's operators, longest first. Words that no operator explains
belong to a custom operator; the ascending order determines where it must end.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from fusetui.trace.model.aten_ops import ATEN_OPS

_MAX_CUSTOM: Final = 64
_MAX_TEXT: Final = 600

_FIRST_WORD = re.compile("_*[a-z0-9]+")


def _by_first_word() -> dict[str, tuple[str, ...]]:
    """Operators that begin with the same word, the longest first."""
    found: dict[str, list[str]] = {}
    for op in ATEN_OPS:
        word = _FIRST_WORD.match(op)
        found.setdefault(word[0] if word else op, []).append(op)
    return {word: tuple(sorted(ops, key=len, reverse=True)) for word, ops in found.items()}


_BY_FIRST_WORD: Final = _by_first_word()

_Cost = tuple[int, int, int, int]
"""Cost of a split: custom operators, those that begin with a known one, their letters,
operators."""


@lru_cache(maxsize=4096)
def split_ops(text: str) -> tuple[str, ...]:
    """The operators of a joined list, in the alphabetical order of the name.

    Empty for a text that is too long and contains custom operators.

    >>> split_ops("_unsafe_view_gelu_mul")
    ('_unsafe_view', 'gelu', 'mul')
    """
    return _greedy(text) or (_best(text) if len(text) <= _MAX_TEXT else ())


def _ends(text: str, start: int) -> list[int]:
    """Where an operator that begins at `start` may end: before an underscore or at the end."""
    limit = min(len(text), start + _MAX_CUSTOM)
    ends = [at for at in range(start + 1, limit) if text[at] == "_" and at + 1 < len(text)]
    return [*ends, len(text)] if limit == len(text) else ends


def _greedy(text: str) -> tuple[str, ...]:
    """The split into longest known operators, or nothing if it fails or is not ascending."""
    ops: list[str] = []
    at, size = 0, len(text)
    while at < size:
        op = _longest(text, at)
        if op is None or (ops and op <= ops[-1]):
            return ()
        ops.append(op)
        at += len(op) + 1
    return tuple(ops)


def _longest(text: str, start: int) -> str | None:
    """The longest operator in the text at `start`, up to an underscore or the end."""
    word = _FIRST_WORD.match(text, start)
    for op in _BY_FIRST_WORD.get(word[0], ()) if word else ():
        end = start + len(op)
        if text.startswith(op, start) and (end == len(text) or text[end] == "_"):
            return op
    return None


def _best(text: str) -> tuple[str, ...]:
    """The ascending split with the fewest custom operators and the fewest letters in them.

    Works from the end: best[start][op] is the cheapest split of text[start:] that begins with op.
    """
    best: dict[int, list[tuple[_Cost, tuple[str, ...]]]] = {len(text) + 1: [((0, 0, 0, 0), ())]}
    for start in range(len(text) - 1, -1, -1):
        if start and text[start - 1] != "_":
            continue
        splits = [
            found
            for end in _ends(text, start)
            if (found := _extend(text[start:end], best.get(end + 1, []))) is not None
        ]
        best[start] = sorted(splits)
    return best[0][0][1] if best.get(0) else (text,)


def _extend(
    op: str, rests: list[tuple[_Cost, tuple[str, ...]]]
) -> tuple[_Cost, tuple[str, ...]] | None:
    """`op` before the cheapest rest that begins with a later name."""
    for (custom, odd, letters, count), ops in rests:
        if ops and op >= ops[0]:
            continue
        if op in ATEN_OPS:
            return (custom, odd, letters, count + 1), (op, *ops)
        # A custom operator begins with the name of its library, hardly with another operator.
        odd += op.partition("_")[0] in ATEN_OPS
        return (custom + 1, odd, letters + len(op), count + 1), (op, *ops)
    return None
