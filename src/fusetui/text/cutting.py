"""The width of text in a terminal, in cells; cutting and padding text to a width.

The text is printable: see `printable`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

ELLIPSIS = "…"
DIGITS = "0123456789"
FIRST_ODD = "\u0300"  # every printable character below this takes one cell


def width(text: str) -> int:
    """The number of terminal cells that the text takes.

    >>> width("abc"), width("日本"), width("e\\u0301")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_cells, text))


def clip(text: str, most: int, ellipsis: str = ELLIPSIS) -> str:
    """The text in at most `most` cells; if it was cut, it ends in an ellipsis.

    >>> clip("日本語の", 7, "...")
    '日本...'
    """
    if len(_beginning(text, most)) == len(text):
        return text
    return _beginning(text, most - width(ellipsis)) + ellipsis[: max(0, most)]


def middle_clip(text: str, most: int, ellipsis: str = ELLIPSIS) -> str:
    """The text in at most `most` cells; if it was cut, without its middle, as names
    often differ only at their ends; a number at its end is kept whole. Text that is not
    of one cell per character is cut at its end.

    >>> middle_clip("Qwen2DecoderLayer_3", 9, "~"), middle_clip("Qwen2DecoderLayer_10", 4, "~")
    ('Qwen~er_3', 'Q~10')
    """
    room = most - width(ellipsis)
    if room < 2 or len(text) != width(text) or len(text) <= most:
        return clip(text, most, ellipsis)
    number = len(text) - len(text.rstrip(DIGITS))
    end = max(room // 2, number) if number < room else room // 2
    return text[: room - end] + ellipsis + text[len(text) - end :]


@lru_cache(maxsize=4096)
def word_clip(text: str, most: int, ellipsis: str = ELLIPSIS) -> str:
    """The text in at most `most` cells; if it was cut, words without a digit were
    shortened, the longest first, so that every number is kept.

    >>> word_clip("Stream 102 Submission Queue", 19, "~")
    'Stre~ 102 Sub~ Que~'
    """
    if len(text) != width(text) or len(text) <= most:
        return clip(text, most, ellipsis)
    words = text.split(" ")
    left = {n: len(word) for n, word in enumerate(words) if not set(word) & set(DIGITS)}
    excess = len(text) - most
    while excess > 0:
        longest = max(left, key=lambda n: (left[n], n), default=-1)
        if longest < 0 or left[longest] <= len(ellipsis) + 1:
            return middle_clip(text, most, ellipsis)
        left[longest] -= 1
        excess -= 1
    shown = (
        clip(word, left[n], ellipsis) if n in left else word
        for n, word in enumerate(words)
    )
    return " ".join(shown)


def clip_apart(texts: Sequence[str], most: int, ellipsis: str = ELLIPSIS) -> list[str]:
    """Each of the texts in at most `most` cells; those that would be cut to the same
    are cut in their middle instead.

    >>> clip_apart(["gemm tile a", "gemm tile b", "softmax of a"], 7, "~")
    ['gem~e a', 'gem~e b', 'softma~']
    """
    found = [(text, clip(text, most, ellipsis)) for text in texts]
    times = Counter(cut for _, cut in {*found})
    return [
        cut if times[cut] == 1 else middle_clip(text, most, ellipsis)
        for text, cut in found
    ]


def pad(text: str, cells: int, left: bool = True) -> str:
    """The text padded to this many cells, aligned left or right; a wider text is kept
    as it is."""
    blanks = " " * (cells - width(text))
    return text + blanks if left else blanks + text


def joined(parts: Sequence[str], most: int, between: str = "   ") -> str:
    """As many of the parts as fit into this many cells, but always the first."""
    text = ""
    for part in parts:
        longer = f"{text}{between}{part}" if text else part
        if text and width(longer) > most:
            break
        text = longer
    return text


def warm() -> None:
    """Loads the tables of widths, which takes longer than drawing a frame."""
    _cells(FIRST_ODD)


def _beginning(text: str, cells: int) -> str:
    """As much of a text as fits, including combining marks on the last character."""
    if text.isascii():
        return text[: max(0, cells)]
    used = 0
    for at, char in enumerate(text):
        used += _cells(char)
        if used > cells:
            return text[:at]
    return text


def _cells(char: str) -> int:
    if char < FIRST_ODD or char == ELLIPSIS:
        return 1
    # its tables take longer to load than most commands take to run
    from wcwidth import wcwidth

    return max(0, wcwidth(char))
