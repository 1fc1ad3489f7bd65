"""The width of text in a terminal, in cells; cutting and padding text to a width.

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
    """The number of terminal cells that the text takes.

    >>> width("abc"), width("日本"), width("e\\u0301")
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def clip(text: str, max_cells: int, ellipsis: str = ELLIPSIS) -> str:
    """The text in at most `max_cells` cells. If it was cut, it ends in the ellipsis, or
    in as much of that as fits.

    >>> clip("日本語の", 7, "...")
    '日本...'
    """
    if len(_beginning(text, max_cells)) == len(text):
        return text
    kept = _beginning(text, max_cells - width(ellipsis))
    return kept + ellipsis[: max(0, max_cells)]


def middle_clip(text: str, max_cells: int, ellipsis: str = ELLIPSIS) -> str:
    """The text in at most `max_cells` cells. If it was cut, its middle is missing, as
    names often differ only at their ends; a number at its end is kept whole if it fits.

    Like `clip` where there are fewer than two cells beside the ellipsis, and for text
    that is not of one cell per character, or whose end was cut before.

    >>> middle_clip("Qwen2DecoderLayer_3", 9, "~"), middle_clip("Qwen2DecoderLayer_10", 4, "~")
    ('Qwen~er_3', 'Q~10')
    >>> middle_clip("split_emb_bwd_rowwise_adag...", 7, "~")
    'split_~'
    """
    kept_cells = max_cells - width(ellipsis)
    is_one_cell_per_char = len(text) == width(text)
    was_cut = text.endswith(CUT_BEFORE)
    if kept_cells < 2 or not is_one_cell_per_char or len(text) <= max_cells or was_cut:
        return clip(text, max_cells, ellipsis)
    end_cells = kept_cells // 2
    without_number = text.rstrip(DIGITS)
    number_cells = len(text) - len(without_number)
    if number_cells < kept_cells:
        end_cells = max(end_cells, number_cells)
    beginning = text[: kept_cells - end_cells]
    end = text[len(text) - end_cells :]
    return f"{beginning}{ellipsis}{end}"


@lru_cache(maxsize=4096)
def word_clip(text: str, max_cells: int, ellipsis: str = ELLIPSIS) -> str:
    """The text in at most `max_cells` cells. If it was cut, words without a digit were
    shortened, the longest first, so that every number is kept.

    Like `middle_clip` where that does not suffice, and like `clip` for text that is not
    of one cell per character.

    >>> word_clip("Stream 102 Submission Queue", 19, "~")
    'Stre~ 102 Sub~ Que~'
    """
    if len(text) != width(text) or len(text) <= max_cells:
        return clip(text, max_cells, ellipsis)
    words = text.split(" ")
    word_cells = {
        place: len(word)
        for place, word in enumerate(words)
        if not set(word) & set(DIGITS)
    }
    for _ in range(len(text) - max_cells):
        # of equally long words the last
        longest = max(word_cells, key=lambda n: (word_cells[n], n), default=None)
        if longest is None or word_cells[longest] <= len(ellipsis) + 1:
            return middle_clip(text, max_cells, ellipsis)
        word_cells[longest] -= 1
    for place, cells in word_cells.items():
        words[place] = clip(words[place], cells, ellipsis)
    return " ".join(words)


def clip_apart(
    texts: Sequence[str], max_cells: int, ellipsis: str = ELLIPSIS
) -> list[str]:
    """Each of the texts in at most `max_cells` cells; different texts that would be cut
    to the same are cut in their middle instead.

    >>> clip_apart(["gemm tile a", "gemm tile b", "softmax of a"], 7, "~")
    ['gem~e a', 'gem~e b', 'softma~']
    """
    clipped = {text: clip(text, max_cells, ellipsis) for text in texts}
    texts_per_clipped = Counter(clipped.values())
    return [
        clipped[text]
        if texts_per_clipped[clipped[text]] == 1
        else middle_clip(text, max_cells, ellipsis)
        for text in texts
    ]


def pad(text: str, cells: int, left: bool = True) -> str:
    """The text padded with blanks to this many cells: at its end if it is aligned
    `left`, else before it. A wider text is kept as it is."""
    blanks = " " * (cells - width(text))
    return text + blanks if left else blanks + text


def joined(parts: Sequence[str], max_cells: int, between: str = "   ") -> str:
    """The first parts, with `between` between them: as many as fit into `max_cells`
    cells, but always the first one."""
    text = ""
    for part in parts:
        if not text:
            text = part
            continue
        longer = text + between + part
        if width(longer) > max_cells:
            break
        text = longer
    return text


def warm() -> None:
    """Loads the tables of widths, which takes longer than drawing a frame."""
    _char_width(FIRST_OF_OTHER_WIDTH)


def _beginning(text: str, cells: int) -> str:
    """As much of a text as fits, including combining marks on the last character."""
    if text.isascii():
        return text[: max(0, cells)]
    used_cells = 0
    for place, char in enumerate(text):
        used_cells += _char_width(char)
        if used_cells > cells:
            return text[:place]
    return text


def _char_width(char: str) -> int:
    if char < FIRST_OF_OTHER_WIDTH or char == ELLIPSIS:
        return 1
    # its tables take longer to load than most commands take to run
    from wcwidth import wcwidth

    return max(0, wcwidth(char))


def with_capital(sentence: str) -> str:
    """A sentence with a capital at its begin."""
    return sentence[:1].upper() + sentence[1:]
