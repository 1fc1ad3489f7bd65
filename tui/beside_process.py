"""Works for the app in a process of its own, so that no key waits for it: see beside.py.

Each line of standard input asks about one trace; the answers go to standard output. The process
ends when standard input does: nobody waits for the rest then.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import IO

import msgspec

from fusetui.trace.load import open_trace
from fusetui.trace.model.callbacks import never
from fusetui.trace.model.errors import TraceError
from fusetui.trace.serving.opening import with_captures
from fusetui.tui.beside import Request, request_for
from fusetui.tui.later import pieces
from fusetui.tui.shipping import ship


def main() -> None:
    gc.disable()
    out = os.fdopen(os.dup(1), "wb")
    requests: SimpleQueue[Request] = SimpleQueue()
    Thread(target=_listen, args=(requests,), daemon=True).start()
    _warm()
    with suppress(OSError):
        while True:
            answer(requests.get(), out)


def answer(request: Request, out: IO[bytes]) -> None:
    """Writes all pieces about a trace, then None. Where the file cannot be read, or is another one
    by now, writes only False. Raises OSError when nobody reads any more."""
    try:
        named = request.captured_by
        trace, _ = with_captures(open_trace(request.path), named, open_trace)
    except TraceError:
        ship(False, None, out)
        return
    if request_for(request.path, trace, named) != request:
        ship(False, None, out)
        return
    for piece in pieces(trace, never):
        ship(piece, trace, out)
    ship(None, trace, out)


def _listen(requests: SimpleQueue[Request]) -> None:
    for line in sys.stdin.buffer:
        requests.put(msgspec.json.decode(line, type=Request))
    os._exit(0)


def _warm() -> None:
    """Imports what is needed while the app still reads the trace."""
    import fusetui.trace.insights.why
    import fusetui.tui.layout.answer
    import fusetui.tui.layout.kernel_table  # noqa: F401
