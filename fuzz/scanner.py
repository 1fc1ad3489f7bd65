"""The kind of inputs that the compiled scanner (scan.c) reads: lists of events, whole
and damaged.

What it reads is compared with what Python reads; it may leave any list to Python. `make
sanitize` runs this kind with a scanner that AddressSanitizer and
UndefinedBehaviorSanitizer watch. Its path is in FUSETUI_SCANNER.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
from fuzz.campaign import Kind
from fuzz.damage import damaged
from fuzz.document import document
from fuzz.shrink import shrunk_bytes
from fuzz.trial import alone

from fusetui.trace.model.events import Stretch
from fusetui.trace.read import scanned
from fusetui.trace.read.chunks import decode_list
from fusetui.trace.read.elements import args_in
from fusetui.trace.read.gather import ChunkColumns
from fusetui.trace.read.scanned import scan_args

SCANNER = "FUSETUI_SCANNER"
MAX_CHANGES = 4
COUNTS = (1, 1, 2, 5, 1000)  # events of a list
ASKED = ("grid", "Input Dims", "correlation", "stream", "name")


class HeldText:
    """The text of a list, and nothing around it: reading beyond its end is an error."""

    at_hand = True

    def __init__(self, data: bytes) -> None:
        self._data = data

    def problem(self) -> str:
        return ""

    def part(self, start: int, end: int) -> bytes:
        return self._data[start:end]


@cache
def scanner() -> ModuleType:
    """The scanner of this installation, or the one whose path the environment names.

    Raises ImportError where there is none.
    """
    path = os.environ.get(SCANNER)
    if path is None:
        if scanned.scan is None:
            raise ImportError("the scanner was not compiled")
        return scanned.scan
    name = "fusetui.trace.read.scan"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module


def events_text(seed: int, number: int) -> bytes:
    """The elements of traceEvents; always the same for the same numbers."""
    rnd = Random(f"scanner {seed}/{number}")
    whole = document(rnd)
    first = rnd.randrange(max(1, len(whole.elements)))
    # one odd event makes the scanner leave the whole list
    last = first + rnd.choice(COUNTS)
    data = whole.between.join(whole.elements[first:last]).encode(
        "utf-8", "surrogatepass"
    )
    for _ in range(rnd.choice((0, 0, 1, 1, 2, MAX_CHANGES)) if data else 0):
        data = damaged(data, rnd)
    return data


def attempt(seed: int, number: int) -> str:
    return compared(events_text(seed, number))


def compared(data: bytes) -> str:
    """What the scanner did with a list.

    Raises AssertionError if it read another thing than Python reads.
    """
    scanned.scan = scanner()
    columns = scanned.scanned(data)
    count = data.count(b"{") if columns is None else columns.phases.total()
    args = _args(data, count)
    if columns is None:
        return "left to Python"
    scanned.scan = None  # type: ignore[assignment]
    try:
        chunk = decode_list(data, 0, len(data))
        assert chunk is not None, "Python reads nothing of it"
        assert _plain(columns) == _plain(chunk.columns), "columns differ"
        if args is not None:
            assert args == _args(data, count), "args differ"
    finally:
        scanned.scan = scanner()
    return "read by both"


def _args(data: bytes, count: int) -> list[Any] | None:
    """Some args of every third of `count` events, and their sequence numbers, as plain
    values; None where there are none or not so many events."""
    places = list(range(0, count, 3))
    if scanned.scan is None:
        found = args_in(
            HeldText(data), Stretch(0, len(data), count), places, ASKED, sequences=True
        )
    else:
        text = HeldText(data)
        found = scan_args(text, Stretch(0, len(data), count), places, ASKED, True, ())
    if found is None:
        return None
    (numbers, texts), sequences, _ = found
    return [
        [texts[n] if n >= 0 else None for n in numbers.tolist()],
        sequences.tolist(),
    ]


def _plain(columns: ChunkColumns) -> list[Any]:
    values = (getattr(columns, name) for name in columns.__struct_fields__)
    return [
        [v.dtype.str, v.tolist()] if isinstance(v, np.ndarray) else v for v in values
    ]


def save(seed: int, number: int, what: str, place: Path) -> Path:
    def fails(data: bytes) -> bool:
        return alone(lambda: compared(data)).what == what

    path = place.with_suffix(".json")
    path.write_bytes(shrunk_bytes(events_text(seed, number), fails))
    return path


KIND = Kind("scanner", attempt, save)
