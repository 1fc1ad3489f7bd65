"""Python lines in the text of stacks, in the format of the traceback module."""

from __future__ import annotations

import re

import msgspec

from fusetui.text.patterns import lazy_pattern

FRAME = lazy_pattern(
    r'^ {2}File "(?P<file>[^"\n]{1,4096})", line (?P<line>[0-9]{1,9}), in (?P<function>[^\n]*)\n?'
    r"(?: {4}(?P<code>[^\n]*)\n?)?",
    re.MULTILINE,
)
MAX_FRAMES = 256  # of a stack
MAX_CODE_CHARS = 500


class CodeLine(msgspec.Struct, frozen=True, order=True):
    """A line of Python that is on a stack; `code` is its text, "" if unknown."""

    file: str
    line: int
    function: str
    code: str

    def __hash__(self) -> int:
        return hash((self.file, self.line, self.function, self.code))


def frames_in(text: str) -> tuple[CodeLine, ...]:
    """The frames of a stack, outermost first.

    >>> frames_in('  File "m.py", line 10, in forward\\n    h = gelu(x)\\n        ^^^^')
    (CodeLine(file='m.py', line=10, function='forward', code='h = gelu(x)'),)
    """
    frames: list[CodeLine] = []
    for match in FRAME.finditer(text):
        if len(frames) >= MAX_FRAMES:
            break
        code = (match["code"] or "").strip()
        if code.startswith("File "):  # of the next frame: this one has no text
            code = ""
        frames.append(
            CodeLine(
                file=match["file"],
                line=int(match["line"]),
                function=match["function"].strip(),
                code=code[:MAX_CODE_CHARS],
            )
        )
    return tuple(frames)
