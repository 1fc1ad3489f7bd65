"""Parses the Python stacks of a rank, in the format of `faulthandler`, from the page
`/stacks` of torch's debug server."""

from __future__ import annotations

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.flight.columns import Frame

STACKS_KEY = "fusetui_python_stacks"
"""The key of a dump taken from a debug server that holds this text, added by fusetui."""

MAX_FRAMES = 1024
MAX_TEXT_CHARS = 4 << 20
FRAME = lazy_pattern(
    r'^  File "(?P<file>[^"\n]{0,4096})", line (?P<line>[0-9]{1,9}) in (?P<function>.{0,1000})$'
)


def main_thread(text: str) -> tuple[Frame, ...]:
    """Return the frames of the main thread, innermost first.

    faulthandler writes a line `Thread 0x7f... (most recent call first):` and then the
    frames, `  File "train.py", line 42 in step`, for one thread after the other. The
    newest thread is the first, so the main thread is the last that has frames.

    Args:
        text: What faulthandler wrote.

    Returns:
        The frames, MAX_FRAMES at most; () if the text has none.
    """
    threads: list[list[Frame]] = [[]]
    for line in text[:MAX_TEXT_CHARS].splitlines():
        if "hread 0x" in line:  # "Thread 0x7f..." or "Current thread 0x7f..."
            threads.append([])
            continue
        match = FRAME.match(line)
        if match and len(threads[-1]) < MAX_FRAMES:
            frame = Frame(
                function=match["function"],
                file=match["file"],
                line=int(match["line"]),
            )
            threads[-1].append(frame)
    with_frames = [frames for frames in threads if frames]
    return tuple(with_frames[-1]) if with_frames else ()
