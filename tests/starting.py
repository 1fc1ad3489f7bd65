"""Starts the app: forks a process that has imported everything already, or starts one
anew.

Importing takes most of the time of a short run of the app. Each run has its own
session, its own environment and its own copy of everything that was imported, as a
process started anew. Whoever starts one calls `end` afterwards.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

PYTHON = sys.executable  # of what is started anew
SERVER = """
import fcntl, json, os, socket, sys, termios
from fusetui.cli import script
import fusetui.commands.open, fusetui.tui.app

requests = socket.socket(fileno=int(sys.argv[1]))
while True:
    text, fds, *_ = socket.recv_fds(requests, 1 << 20, 3)
    if not text:
        sys.exit()
    request = json.loads(text)
    if "pid" in request:
        pid, status = os.waitpid(request["pid"], os.WNOHANG)
        requests.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
    elif pid := os.fork():
        for fd in fds:
            os.close(fd)
        requests.send(json.dumps(pid).encode())
    else:
        break

requests.close()
os.setsid()
for fd, source in enumerate(fds):
    os.dup2(source, fd)
    os.close(source)
for fd, name in enumerate(("stdin", "stdout", "stderr")):
    stream = open(fd, "w" if fd else "r", buffering=1, closefd=False)
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)
if request["controlling"]:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.environ.clear()
os.environ.update(request["environment"])
sys.argv = ["-c", *request["arguments"]]
exec(request["change"])
script()
"""


class Started:
    """A run of fusetui, with the methods of Popen that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code once it has ended; a signal's number is negative."""
        if self._code is None:
            self._code = _ask({"pid": self.pid})
        return self._code

    def wait(self) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str],
    streams: tuple[int, int, int],
    environment: Mapping[str, str],
    change: str,
    controlling: bool,
) -> Started:
    """`fusetui ARGUMENTS` in a session of its own, after the Python code `change`.

    `streams` are its standard input, output and error; `controlling`: the first is its
    terminal.
    """
    request = {
        "arguments": [*arguments],
        "environment": {**environment},
        "change": change,
        "controlling": controlling,
    }
    pid = _ask(request, streams)
    assert pid is not None
    return Started(pid)


def start_anew(
    arguments: Sequence[str],
    streams: tuple[int, int, int],
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """The same in a new process, as from a shell."""
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [PYTHON, "-P", "-m", "fusetui", *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )


def end() -> None:
    """Ends the process that forks; the next start starts another one."""
    if _server.cache_info().currsize:
        process, requests = _server()
        requests.close()
        process.wait()
        _server.cache_clear()


def _ask(request: Mapping[str, object], streams: Sequence[int] = ()) -> int | None:
    _, requests = _server()
    socket.send_fds(requests, [json.dumps(request).encode()], streams)
    answer: int | None = json.loads(requests.recv(1 << 10))
    return answer


@cache
def _server() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process that forks, and the way to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", SERVER, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    return process, ours


def children() -> set[int]:
    """The processes that this one has started and not waited for; Linux only."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for found in lists for number in found.read_text().split()}
