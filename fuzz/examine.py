"""One input tried: it is read, asked everything, and judged. What fails raises."""

from __future__ import annotations

import tempfile
import warnings
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from random import Random

from fuzz.case import Case
from fuzz.checks import check_trace
from fuzz.document import document
from fuzz.limits import check_memory
from fuzz.losses import check_losses, check_refused
from fuzz.questions import questions
from fuzz.sizes import sized
from fuzz.ways import WAYS

from fusetui.trace import Trace, TraceError, open_trace

ASKED = 0.12  # share of the questions that one input is asked: many inputs matter more

Limited = Callable[[str], AbstractContextManager[object]]
"""Called with what is asked; raises, or ends the process, when that takes too long."""


def examine(case: Case, limited: Limited = nullcontext, asked: float = ASKED) -> str:
    """What became of it: `refused`, or how its losses were judged. Depends on the case
    alone."""
    rnd = Random(zlib.crc32(case.data))
    with (
        warnings.catch_warnings(action="error"),
        tempfile.TemporaryDirectory() as folder,
        sized(case.sizes),
    ):
        path = Path(folder) / "trace.json"
        path.write_bytes(case.data)
        try:
            with limited("open"):
                trace = open_trace(str(path), cached=False)
        except TraceError as error:
            check_refused(str(error), case.data)
            return "refused"
        check_trace(trace)
        for name, ask in questions(trace, partial(_other, path, rnd), path, rnd):
            if rnd.random() < asked:
                with limited(name):
                    ask()
        for way in WAYS:
            if rnd.random() < asked:
                with limited(way.__name__):
                    way(trace, path, rnd)
        check_memory()
        return check_losses(trace, case.data)


def _other(path: Path, rnd: Random) -> Trace | None:
    """Another trace, to compare with."""
    beside = path.with_name("other.json")
    beside.write_text(document(rnd).text())
    try:
        return open_trace(str(beside), cached=False)
    except TraceError:
        return None
