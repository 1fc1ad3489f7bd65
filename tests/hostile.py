"""Text that a terminal would interpret or hide, in every field of a trace."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAYLOADS = {
    "title": "\x1b]0;PWN\x07",
    "clipboard": "\x1b]52;c;UFdO\x07",
    "csi": "\x1b[7331X",
    "dcs": "\x1bPPWN\x1b\\",
    "c1": "\x9b7331X\x9d0;PWN\x9c",
    "delete": "\x7fPWN",
    "bidi": "\u202ePWN\u2066",
    "zero width": "P\u200bW\u2060N\ufeff",
    "hidden": "P\u034fW\u3164N\ufe0f\U000e0041",
    "line": "\nPWN",
    "separator": "\u2028PWN",
    "return": "\rPWN\x08",
    "bell": "\x07PWN",
    "surrogate": "\ud800PWN",
}
WORST = "".join(PAYLOADS.values())
FILE_NAME = "\x1b]0;PWN\x07\x9b31m\u202e\u200b\nPWN\r\x7f\udcff"  # a possible file name
HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
HIDDEN = frozenset("\u034f\u115f\u1160\u3164\ufe0f\uffa0\U000e0100")
OUR_SEQUENCES = re.compile(
    r"\x1b\[[0-9;]*[mH]"  # styles, places of the cursor
    r"|\x1b\[\?[0-9]+[hl]"  # modes of the terminal
    r"|\x1b\[\?[0-9]+\$p"  # and questions about them
    r"|\x1b\[(?:>[0-9]+|<)u"  # the keyboard
    r"|\x1b\]22;[a-z-]+\x07"  # the shape of the pointer
    r"|\x1b\]52;c;[A-Za-z0-9+/=]*\x07"  # the clipboard, in base 64
)


def obeyed(text: str, allowed: str = "\n") -> set[str]:
    """The parts of a text that a terminal would interpret or hide."""
    return {c for c in set(text) - set(allowed) if is_hidden(c)}


def is_hidden(char: str) -> bool:
    return unicodedata.category(char) in HIDDEN_CATEGORIES or char in HIDDEN


def not_ours(output: bytes) -> set[str]:
    """What the app let through to the terminal, other than its own sequences."""
    return obeyed(OUR_SEQUENCES.sub("", output.decode()), "\r\n")


def write_trace(path: Path, texts: Iterable[str] = PAYLOADS.values()) -> Path:
    """A trace in which each of the texts occurs in every field."""
    found = list(texts)
    events = [
        event for number, text in enumerate(found) for event in _events(number, text)
    ]
    worst = "".join(found)
    document = {
        "schemaVersion": 1,
        "traceName": worst,
        "host_name": worst,
        "distributedInfo": {"backend": worst, "rank": worst, worst: [worst]},
        "deviceProperties": [
            {"id": n, "name": text, text: text} for n, text in enumerate(found)
        ],
        worst: {worst: worst},
        "traceEvents": events,
    }
    path.write_text(json.dumps(document))
    return path


def _events(number: int, text: str) -> list[dict[str, Any]]:
    """Separate threads and a GPU; every name is the text."""
    begin, args = (
        1000 * number,
        {text: text, "list": [{text: [text]}], "Input Dims": [[text]]},
    )
    thread = {"pid": 100 + number, "tid": 100 + number}
    stream = {"pid": number, "tid": 7}
    odd = {"pid": text, "tid": text}
    link = {"correlation": number + 1, **args}
    call = {"cat": "cuda_runtime", "ts": begin + 20, "dur": 5, "args": link}
    kernel = {
        "cat": "kernel",
        "ts": begin + 40,
        "dur": 300,
        "args": {**link, "grid": text},
    }
    frame = f"{text}.py(1): {text}"
    return [
        *(
            {"ph": "M", "name": kind, "args": {"name": text, "labels": text}, **where}
            for kind in ("process_name", "process_labels", "thread_name")
            for where in (thread, stream, odd)
        ),
        _slice(
            f"ProfilerStep#{text}", thread, cat="user_annotation", ts=begin, dur=900
        ),
        _slice(frame, thread, cat="python_function", ts=begin + 5, dur=800),
        _slice(text, thread, cat="cpu_op", ts=begin + 10, dur=100, args=args),
        _slice(text, thread, **call),
        _slice(text, stream, **kernel),
        _slice(text, odd, cat=text, ts=begin, dur=700, args=args),
        {
            "ph": "C",
            "name": text,
            "id": text,
            "ts": begin,
            "args": {text: 1, "b": 2},
            **thread,
        },
        {"ph": "i", "name": "[memory]", "s": text, "ts": begin, "args": args, **thread},
    ]


def _slice(name: str, where: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, **where, **more}
