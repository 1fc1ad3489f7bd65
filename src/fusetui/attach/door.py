"""The daemon's end of the sockets at which processes ask: who asked, and the answers."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from fusetui import Error
from fusetui.attach.protocol import (
    CLIENT,
    DAEMON,
    DATAGRAM,
    LONGEST_FOLDER,
    Asked,
    Registered,
    answer,
    decoded,
)

CREDENTIALS = struct.Struct("=iii")  # PID, user, group: filled in by the system
ABSTRACT = f"\0{DAEMON}\0"


class CannotListen(Error):  # noqa: N818
    """The folder of the socket is not private, too long or missing, or the address is taken."""


class Heard(Struct, frozen=True):
    """A message of a process of this user. `pid` is the system's word, not the sender's."""

    pid: int
    message: Asked | Registered
    sender: str | bytes


class Door:
    """A socket in a private folder, or at the abstract address if `folder` is "". `ignored` counts
    datagrams of wrong sizes or of other users. Raises CannotListen."""

    def __init__(self, folder: str) -> None:
        self.folder, self.ignored = folder, 0
        self._address = f"{folder}/{DAEMON}" if folder else ABSTRACT
        if folder:
            check_folder(folder)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            if folder:
                self._remove_stale()
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(self._address)
            self._own = os.stat(self._address) if folder else None
        except CannotListen:
            self._socket.close()
            raise
        except OSError as error:
            self._socket.close()
            if error.errno == errno.EADDRINUSE:
                raise CannotListen(taken(folder)) from None
            where = f"in {folder}" if folder else "at its abstract address"
            raise CannotListen(f"No socket can be made {where}: {error.strerror}.") from None

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def heard(self) -> Iterator[Heard]:
        """What was sent since, of this user's processes, at most 1,000 messages."""
        for _ in range(1000):
            try:
                datagram, extras, flags, sender = self._socket.recvmsg(DATAGRAM, 256)
            except OSError:
                return
            message = None if flags & socket.MSG_TRUNC else decoded(datagram)
            pid, user, _ = CREDENTIALS.unpack(extras[0][2]) if extras else (0, -1, -1)
            if message is None or user != os.geteuid() or not _is_client(sender):
                self.ignored += 1
            else:
                yield Heard(pid, message, sender)

    def answer(self, to: Heard, text: str = "") -> bool:
        """Answers once; returns whether the system took it. A process reads one answer for each
        message, so that nothing may be sent that it did not ask for."""
        asked = isinstance(to.message, Asked)
        body = answer("req", text.encode()) if asked else answer("ctxt", bytes(4))
        try:
            return self._socket.sendto(body, to.sender) == len(body)
        except OSError:
            return False

    def close(self) -> None:
        """Removes the socket."""
        if self._own is not None:
            with suppress(OSError):
                if os.path.samestat(os.lstat(self._address), self._own):
                    os.unlink(self._address)
        self._socket.close()

    def _remove_stale(self) -> None:
        """The socket of a daemon that was killed. Raises CannotListen if another one listens."""
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(self._address).st_mode):
                raise CannotListen(f"{self._address} is no socket: move it away.")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
                try:
                    trial.connect(self._address)
                except ConnectionRefusedError:
                    os.unlink(self._address)
                else:
                    raise CannotListen(taken(self.folder))


def check_folder(folder: str) -> None:
    """Raises CannotListen unless it is a folder for sockets that only its owner, this user, may
    enter: whoever can write to the socket of a process can end it."""
    if not os.path.isabs(folder) or len(os.fsencode(folder)) > LONGEST_FOLDER:
        raise CannotListen(
            f"{folder} cannot hold sockets: name an absolute path of at most {LONGEST_FOLDER} bytes"
        )
    try:
        found = os.lstat(folder)
    except OSError as error:
        raise CannotListen(f"{folder} cannot hold sockets: {error.strerror}.") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise CannotListen(f"{folder} cannot hold sockets: it is no folder of yours.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise CannotListen(f"{folder} is open to other users: chmod 700 {folder}")


def taken(folder: str) -> str:
    """That another daemon listens, and how to ask dynolog itself."""
    where = f"in {folder}" if folder else "at the abstract address"
    return (
        f"Another daemon listens {where}: dynolog, or another fusetui. dynolog is asked by "
        "dyno gputrace --pids PID --duration-ms 500 --log-file /tmp/trace.json"
    )


def _is_client(sender: str | bytes | None) -> bool:
    name = sender if isinstance(sender, bytes) else os.fsencode(sender or "")
    return Path(os.fsdecode(name.strip(b"\0"))).name.startswith(CLIENT)
