"""Recorded values as Python source: literals and comments, never code.

Numbers are written from their parsed value, texts as ASCII literals, and whatever goes
into a comment loses every character that could end its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fusetui.text.printable import printable

MAX_COMMENT_CHARS = 200
LINE_CHARS = 88


def literal(value: object) -> str:
    """A Python literal of None, truth values, numbers, texts, and lists and tuples of
    them, which become lists. Raises TypeError for anything else."""
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return float_literal(value)
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    raise TypeError(f"{type(value).__name__} has no literal")


def text_literal(text: str) -> str:
    """A text in ASCII between quotes, double ones where none have to be escaped."""
    quoted = ascii(text)
    if quoted.startswith("'") and '"' not in quoted:
        return f'"{quoted[1:-1]}"'
    return quoted


def float_literal(value: float) -> str:
    """A number with a point or an exponent, or math.inf, -math.inf and math.nan."""
    if math.isnan(value):
        return "math.nan"
    if math.isinf(value):
        return "math.inf" if value > 0 else "-math.inf"
    return repr(value)


def number_literal(text: str) -> str:
    """The literal of a number or truth value as the profiler prints it: `0.`, `True`,
    `1e-05`, `-inf`. Raises ValueError for anything else."""
    if text in ("True", "False"):
        return text
    try:
        return repr(int(text))
    except ValueError:
        return float_literal(float(text))


def comment(text: str, indent: str = "") -> str:
    """One line of comment."""
    cleaned = printable(text).encode("ascii", "backslashreplace").decode()
    if len(cleaned) > MAX_COMMENT_CHARS:
        cleaned = f"{cleaned[:MAX_COMMENT_CHARS]}..."
    return f"{indent}# {cleaned}".rstrip()


def keyword_lines(name: str, value: str, indent: str) -> str:
    """An entry of a dict on a line of its own."""
    return f'{indent}"{name}": {value},'


def list_lines(items: Iterable[str], indent: str) -> list[str]:
    """A list of literals, on one line if it fits, else one item a line; the lines begin
    behind `indent`, apart from the first."""
    texts = [*items]
    in_one = f"[{', '.join(texts)}]"
    if len(indent) + len(in_one) <= LINE_CHARS:
        return [in_one]
    inner = f"{indent}    "
    return ["[", *(f"{inner}{text}," for text in texts), f"{indent}]"]
