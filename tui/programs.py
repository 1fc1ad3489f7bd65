"""Programs that run, beside the keys: the list of them, and a trace of one."""

from __future__ import annotations

import sys
from functools import partial
from subprocess import DEVNULL, PIPE, Popen

from fusetui.attach.processes import Process, with_torch
from fusetui.text.printable import printable
from fusetui.trace.model.report import Stop
from fusetui.tui.loading import Post
from fusetui.tui.pages.overlays import laid_over
from fusetui.tui.saving import START, said
from fusetui.tui.state import reading
from fusetui.tui.state.state import Chooser, Offer, Outcome, State, told

NONE = "no program of yours has torch loaded: start one with fusetui run -- COMMAND"


def listed(_: int, beside: tuple[str, ...], post: Post, cancelled: Stop) -> None:
    """Posts a choice of the programs of this user that have torch loaded."""
    found = sorted(with_torch(), key=lambda one: (one.folder is None, one.pid))
    offers = tuple(Offer(f"{one.program} {one.pid}", (), _about(one), pid=one.pid) for one in found)

    def show(state: State) -> Outcome:
        if not offers:
            return told(state, NONE)
        return laid_over(state, Chooser(tuple(offer.about for offer in offers), offers))

    post(show)


def _about(one: Process) -> str:
    door = "closed: it was started without KINETO_USE_DAEMON=1" if one.folder is None else "open"
    rank = f"rank {one.rank}   " if one.rank else ""
    return f"{rank}door {door}   {' '.join(one.command)}"


def record(pid: int, beside: tuple[str, ...], post: Post, cancelled: Stop) -> None:
    """Has another process run `fusetui record`, and posts its trace, or why there is none."""
    command = [sys.executable, "-P", "-c", START, "record", "--no-open", "--pid", str(pid)]
    with Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, errors="replace") as process:
        out, told_last = said(process, cancelled)
    if cancelled():
        return
    if process.returncode == 0:
        post(partial(reading.read, paths=(*beside, out.strip())))
    else:
        last = told_last.strip().rpartition("\n")[2]
        post(partial(told, sentence=printable(last)))
