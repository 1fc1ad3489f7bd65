"""Measures the width of text in terminal cells, and cuts and pads text to a width.

The text is printable: see `printable`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

ELLIPSIS = "…"
CUT_BEFORE = "..."  # the end of a short name that was too long
DIGITS = "0123456789"
FIRST_OF_OTHER_WIDTH = "\u0300"
"""Every printable character below this one takes one cell."""


def width(text: str) -> int:
    """Return how many terminal cells a text takes: two for an ideograph, none for a
    combining mark.

    >>> width("abc"), width("日本"), width("e\\u0301")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def clip(text: str, max_cells: int, ellipsis: str = ELLIPSIS) -> str:
    """Cut a text at its end so that it takes at most `max_cells` cells.

    What was cut ends in the ellipsis, or in as much of that as fits.

    >>> clip("kernel", 6, "..."), clip("kernels", 6, "..."), clip("日本語の", 7, "...")
    ('kernel', 'ker...', '日本...')
    """
    if len(_fitting_beginning(text, max_cells)) == len(text):
        return text
    kept = _fitting_beginning(text, max_cells - width(ellipsis))
    return kept + ellipsis[: max(0, max_cells)]


def middle_clip(text: str, max_cells: int, ellipsis: str = ELLIPSIS) -> str:
    """Cut a text in its middle so that it takes at most `max_cells` cells.

    Names often differ only at their ends. A number at the end is kept whole if it fits.

    >>> middle_clip("Qwen2DecoderLayer_3", 9, "~"), middle_clip("Qwen2DecoderLayer_10", 4, "~")
    ('Qwen~er_3', 'Q~10')
    >>> middle_clip("split_emb_bwd_rowwise_adag...", 7, "~")
    'split_~'

    It is `clip` if there are fewer than two cells beside the ellipsis, for a text in
    which some character does not take one cell, and for one whose end was cut before.
    """
    kept_cells = max_cells - width(ellipsis)
    is_one_cell_per_char = len(text) == width(text)
    was_cut_before = text.endswith(CUT_BEFORE)
    if kept_cells < 2 or not is_one_cell_per_char or was_cut_before:
        return clip(text, max_cells, ellipsis)
    if len(text) <= max_cells:
        return text

    end_cells = kept_cells // 2
    number_cells = len(text) - len(text.rstrip(DIGITS))
    if number_cells < kept_cells:
        end_cells = max(end_cells, number_cells)
    beginning = text[: kept_cells - end_cells]
    end = text[len(text) - end_cells :]
    return f"{beginning}{ellipsis}{end}"


@lru_cache(maxsize=4096)
def word_clip(text: str, max_cells: int, ellipsis: str = ELLIPSIS) -> str:
    """Shorten words of a text so that it takes at most `max_cells` cells.

    Words with a digit are kept, as they tell names apart. Of the others the longest is
    shortened by a character, again and again.

    >>> word_clip("Stream 102 Submission Queue", 19, "~")
    'Stre~ 102 Sub~ Que~'

    It is `middle_clip` if that does not suffice, and `clip` for a text in which some
    character does not take one cell.
    """
    is_one_cell_per_char = len(text) == width(text)
    if not is_one_cell_per_char or len(text) <= max_cells:
        return clip(text, max_cells, ellipsis)

    words = text.split(" ")
    cells_of_words = [len(word) for word in words]
    shortened = []  # the indices of the words that may be shortened
    for index, word in enumerate(words):
        has_digit = any(digit in word for digit in DIGITS)
        if not has_digit:
            shortened.append(index)

    min_cells = len(ellipsis) + 1  # a letter and the ellipsis
    for _ in range(len(text) - max_cells):
        # The key prefers the last one of equally long words.
        longest = max(
            shortened, key=lambda index: (cells_of_words[index], index), default=None
        )
        if longest is None or cells_of_words[longest] <= min_cells:
            return middle_clip(text, max_cells, ellipsis)
        cells_of_words[longest] -= 1

    clipped_words = [
        clip(word, cells, ellipsis)
        for word, cells in zip(words, cells_of_words, strict=True)
    ]
    return " ".join(clipped_words)


def clip_apart(
    texts: Sequence[str], max_cells: int, ellipsis: str = ELLIPSIS
) -> list[str]:
    """Cut each of some texts so that they stay different where that is possible.

    A text is cut at its end; but in its middle if another text, cut at its end, would
    look the same.

    >>> clip_apart(["gemm tile a", "gemm tile b", "softmax of a"], 7, "~")
    ['gem~e a', 'gem~e b', 'softma~']
    """
    cut_at_end = {text: clip(text, max_cells, ellipsis) for text in texts}
    texts_that_look_so = Counter(cut_at_end.values())
    cut_texts = []
    for text in texts:
        is_ambiguous = texts_that_look_so[cut_at_end[text]] > 1
        if is_ambiguous:
            cut_texts.append(middle_clip(text, max_cells, ellipsis))
        else:
            cut_texts.append(cut_at_end[text])
    return cut_texts


def pad(text: str, cells: int, left: bool = True) -> str:
    """Pad a text with blanks to a width; a wider text is returned as it is.

    >>> pad("ab", 4), pad("ab", 4, left=False), pad("abcde", 4)
    ('ab  ', '  ab', 'abcde')
    """
    blanks = " " * (cells - width(text))
    return text + blanks if left else blanks + text


def joined(parts: Sequence[str], max_cells: int, between: str = "   ") -> str:
    """Join as many of the first parts as fit into a width, but always the first one.

    >>> joined(["q quit", "? help", "/ search"], 14, "  ")
    'q quit  ? help'
    """
    joined_parts = ""
    for part in parts:
        if not joined_parts:
            joined_parts = part
            continue
        longer = f"{joined_parts}{between}{part}"
        if width(longer) > max_cells:
            break
        joined_parts = longer
    return joined_parts


def warm() -> None:
    """Load the tables with the widths of characters ahead of time, which takes longer
    than drawing a frame."""
    _char_width(FIRST_OF_OTHER_WIDTH)


def _fitting_beginning(text: str, cells: int) -> str:
    """Return as much of a text as fits into some cells, including combining marks on
    the last character: "日" of "日本" for 3 cells."""
    if text.isascii():
        return text[: max(0, cells)]
    used_cells = 0
    for index, char in enumerate(text):
        used_cells += _char_width(char)
        if used_cells > cells:
            return text[:index]
    return text


def _char_width(char: str) -> int:
    """Return how many terminal cells a character takes: 0, 1 or 2."""
    if char < FIRST_OF_OTHER_WIDTH or char == ELLIPSIS:
        return 1
    # its tables take longer to load than most commands take to run
    from wcwidth import wcwidth

    return max(0, wcwidth(char))


def with_capital(sentence: str) -> str:
    """Return a sentence with a capital letter at its begin; the rest is kept."""
    return sentence[:1].upper() + sentence[1:]
