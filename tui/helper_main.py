"""Works for the app in a process of its own, so that no key waits for it: see helper_client.py.

Each line of standard input asks about one trace; the answers go to standard output. The process
ends when standard input does: nobody waits for the rest then.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import IO

import msgspec
from msgspec.structs import replace

from fusetui.analysis.serving.opening import with_captures
from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.report import never
from fusetui.tui.background_results import answers
from fusetui.tui.helper_client import Request, request_for, ship


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    requests: SimpleQueue[Request] = SimpleQueue()
    Thread(target=_listen, args=(requests,), daemon=True).start()
    _warm()
    with suppress(OSError):
        while True:
            answer(requests.get(), out)


def answer(request: Request, out: IO[bytes]) -> None:
    """Writes all pieces about a trace, or the diff of two, or another answer, then None. Where a
    file cannot be read, or is another one by now, writes only False. Raises OSError when nobody
    reads any more."""
    against = request.against
    trace = _opened(replace(request, against=None, search="", replayed=""))
    other = _opened(against) if against and trace is not None else None
    if trace is None or (against and other is None):
        ship(False, None, out)
        return
    for found in answers(trace, never, other, request.search, request.replayed):
        ship(found, trace, out)
    ship(None, trace, out)


def _opened(request: Request) -> Trace | None:
    """The trace that is asked about; None where there is no such trace any more."""
    named = request.captured_by
    try:
        trace, _ = with_captures(open_trace(request.path), named, open_trace)
    except TraceError:
        return None
    return trace if request_for(request.path, trace, named) == request else None


def _listen(requests: SimpleQueue[Request]) -> None:
    for line in sys.stdin.buffer:
        requests.put(msgspec.json.decode(line, type=Request))
    os._exit(0)


def _warm() -> None:
    """Imports what is needed while the app still reads the trace."""
    import fusetui.analysis.diff.compare
    import fusetui.analysis.why.answer
    import fusetui.tui.layout.answer
    import fusetui.tui.layout.kernel_table  # noqa: F401
