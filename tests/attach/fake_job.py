"""A process of torch as its daemon sees it: the socket of libkineto, its questions and
its file.

As a program, it asks until it was told, writes a trace, or what TRACE says, and exits
with 7, or as CODE says. Given a time in seconds, it asks that long and exits with 0.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

TAIL = '{"cat": "cpu_op", "args": {"Input Dims": []}}\n  ],"traceName": "x" }'


def question(*pids: int, kind: int = 3) -> bytes:
    """What libkineto sends every 5 s; kind 1: it is recording."""
    body = struct.pack(f"=iiq{len(pids)}i", kind, len(pids), 0, *pids)
    return struct.pack("=Q32s", len(body), b"req") + body


class FakeJob:
    """Asks in a folder as if it were this very process."""

    def __init__(self, folder: Path, number: int = 1) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"{folder}/dynoconfigclient{number}")
        self.socket.settimeout(0)
        self._daemon = f"{folder}/dynolog"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, kind: int = 3) -> None:
        self.socket.sendto(question(os.getpid(), os.getppid(), kind=kind), self._daemon)

    def answers(self) -> list[str]:
        """The configurations that came since; "" is an answer without one."""
        found: list[str] = []
        while True:
            try:
                datagram = self.socket.recv(1 << 16)
            except BlockingIOError:
                return found
            size, name = struct.unpack_from("=Q32s", datagram)
            assert (size, name.rstrip(b"\0")) == (len(datagram) - 40, b"req")
            found.append(datagram[40:].decode())


def told_file(configuration: str) -> Path:
    """Where libkineto writes, by the first line of a configuration."""
    told = dict(line.split("=") for line in configuration.splitlines())[
        "ACTIVITIES_LOG_FILE"
    ]
    return Path(f"{told.removesuffix('.json')}_{os.getpid()}.json")


def main() -> int:
    asks_s = float(sys.argv[1]) if sys.argv[1:] else 0.0
    until = time.monotonic() + (asks_s or 60)
    with FakeJob(Path(os.environ["KINETO_IPC_SOCKET_DIR"])) as fake:
        while time.monotonic() < until:
            with suppress(OSError):  # nobody listens yet, or has read what was asked
                fake.ask()
            time.sleep(0.03)
            if told := [text for text in fake.answers() if text]:
                told_file(told[0]).write_text(os.environ.get("TRACE", TAIL))
                time.sleep(0.5)
                return int(os.environ.get("CODE", "7"))
    return 0 if asks_s else 1


if __name__ == "__main__":
    sys.exit(main())
