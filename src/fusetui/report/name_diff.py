"""Which characters of two names differ, for a line beneath each."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

WORDS = re.compile(r"[A-Za-z]+|[0-9]+|.", re.DOTALL)
LONGEST = 2000  # characters compared; matching is quadratic at worst


def differing(a: str, b: str, mark: str = "^") -> tuple[str, str]:
    """A line of marks for each name: under the words and numbers that the other does not have.

    >>> differing("gemm_128x64_nn", "gemm_128x128_tn")
    ('         ^^ ^^', '         ^^^ ^^')
    """
    words_a, words_b = WORDS.findall(a[:LONGEST]), WORDS.findall(b[:LONGEST])
    marks_a, marks_b = [], []
    matcher = SequenceMatcher(None, words_a, words_b, autojunk=False)
    for what, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        sign = " " if what == "equal" else mark
        marks_a.append(sign * sum(map(len, words_a[a_from:a_to])))
        marks_b.append(sign * sum(map(len, words_b[b_from:b_to])))
    return "".join(marks_a).rstrip(), "".join(marks_b).rstrip()
