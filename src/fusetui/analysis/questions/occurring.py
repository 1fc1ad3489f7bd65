"""Whether a word can be in the args of a stretch of a file: its text is looked at as it is, which
is faster than decoding it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fusetui.analysis.questions.query import Word
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError

SHAPE = re.compile(r"\d+(?:x\d+)+")
"""A word that shapes are compared with."""
PLAIN = re.compile(r"[\w.,:;\[\](){}=+*#@!?|-]+", re.ASCII)
"""Text that JSON has only one way to write."""


def occur(trace: Trace, number: int, words: Sequence[Word]) -> bool:
    """Whether one of the words may be in stretch `number`, blanks aside. Certain only if not."""
    texts = [word.text.replace(" ", "") for word in words]
    if not all(map(PLAIN.fullmatch, texts)):
        return True
    stretch = trace.elements.stretches[number]
    try:
        written = bytes(trace.elements.text.part(stretch.start, stretch.end)).replace(b" ", b"")
    except (OSError, TraceError):
        return True
    folded = written.lower()
    shapes = (text.lower().replace("x", ",") for text in texts)
    spelled = zip(words, texts, strict=True)
    return any(shape.encode() in folded for shape in shapes) or any(
        text.encode() in (folded if word.folds else written) for word, text in spelled
    )
