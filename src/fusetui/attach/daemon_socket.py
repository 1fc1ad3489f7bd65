"""The daemon's end of the sockets on which processes poll, and the datagrams between
libkineto and its daemon, as pure functions from bytes to values and back.

Each begins with the size of its body (8 bytes, of this machine's order) and a type of
32 bytes that ends with zeros. A process registers each GPU with `ctxt`, and asks with
`req` every 5 s.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from fusetui import Error
from fusetui.text.patterns import lazy_pattern

HEAD = struct.Struct("=Q32s")
"""Of a datagram: the size of its body in bytes, and its type."""

CONTEXT = struct.Struct("=iiq")
"""GPU, PID, job; of a request: kind, number of PIDs, job."""

PID_BYTES = 4

ACTIVITIES = 2
"""The bit of the kind of a request: the process is not recording, and would."""

MAX_DATAGRAM_BYTES = 64 * 1024
"""That are read of one; an honest one has some hundred."""

MAX_MESSAGES = 1000
"""That are read at once."""

CLIENT = "dynoconfigclient"
"""How the sockets of processes are called, with a UUID behind it."""

DAEMON = "dynolog"
"""How the daemon's is called."""

MAX_FOLDER_BYTES = 107 - len(f"/{CLIENT}") - 36
"""Bytes of the path of a folder of sockets: libkineto writes beyond its buffer for
longer ones."""

SAFE = lazy_pattern(r"[\w./+:,@~-]+")
"""Paths that libkineto can be told: a configuration has comments (#), and strips
blanks."""


class ConfigRequest(Struct, frozen=True):
    """A process asks for a configuration: its PID and those of its ancestors, as it
    sees them."""

    kind: int
    job: int
    pids: tuple[int, ...]

    @property
    def is_free(self) -> bool:
        """Whether it would record now."""
        return bool(self.kind & ACTIVITIES)


class Registered(Struct, frozen=True):
    """A process tells that it uses a GPU."""

    gpu: int
    pid: int
    job: int


class RecordingRequest(Struct, frozen=True):
    """What to record: a time in ms, or optimizer steps."""

    milliseconds: int = 500
    steps: int = 0
    extras: frozenset[str] = frozenset({"shapes"})


EXTRAS = {
    "stack": "PROFILE_WITH_STACK",
    "shapes": "PROFILE_REPORT_INPUT_SHAPES",
    "memory": "PROFILE_PROFILE_MEMORY",
}


def decoded(datagram: bytes) -> ConfigRequest | Registered | None:
    """Read the message of a process from a datagram.

    Args:
        datagram: A HEAD, and a body of the size that it says: for the type `ctxt` a
            CONTEXT, for `req` a CONTEXT and as many PIDs of 4 bytes as it says.

    Returns:
        The message; None for another type, or if the sizes do not agree.
    """
    if len(datagram) < HEAD.size:
        return None
    body_bytes, padded_type = HEAD.unpack_from(datagram)
    body = datagram[HEAD.size :]
    if body_bytes != len(body) or len(body) < CONTEXT.size:
        return None

    message_type = padded_type.rstrip(b"\0")
    if message_type == b"ctxt" and len(body) == CONTEXT.size:
        gpu, pid, job = CONTEXT.unpack(body)
        return Registered(gpu=gpu, pid=pid, job=job)
    if message_type == b"req":
        kind, pid_count, job = CONTEXT.unpack_from(body)
        if pid_count > 0 and len(body) == CONTEXT.size + pid_count * PID_BYTES:
            pids = struct.unpack_from(f"={pid_count}i", body, CONTEXT.size)
            return ConfigRequest(kind=kind, job=job, pids=pids)
    return None


def answer(name: str, body: bytes) -> bytes:
    """Return a datagram that answers a message.

    Args:
        name: The type of the message, "ctxt" or "req".
        body: To `ctxt` a number of 4 bytes, to `req` the text of a configuration.
    """
    return HEAD.pack(len(body), name.encode()) + body


def configuration(request: RecordingRequest, file: Path, start_ms: int = 0) -> str:
    r"""Return what a process is told, so that it records.

    For 500 ms from now on into /tmp/a.json these are the lines
    "ACTIVITIES_LOG_FILE=/tmp/a.json", "PROFILE_START_TIME=0" and
    "ACTIVITIES_DURATION_MSECS=500", and one for each of EXTRAS that is wanted.

    Args:
        request: What to record, and for how long.
        file: The file; the process adds its PID to the name, see `written`. Raises
            ValueError if libkineto cannot be told this name.
        start_ms: When to begin, in ms since 1970, so that several processes begin
            together; 0 for at once.
    """
    if not SAFE.fullmatch(str(file)):
        raise ValueError(file)
    lines = [f"ACTIVITIES_LOG_FILE={file}"]
    if request.steps:
        lines.append("PROFILE_START_ITERATION=0")
        lines.append(f"ACTIVITIES_ITERATIONS={request.steps}")
    else:
        lines.append(f"PROFILE_START_TIME={start_ms}")
        lines.append(f"ACTIVITIES_DURATION_MSECS={request.milliseconds}")
        if start_ms:
            lines.append("ACTIVITIES_WARMUP_PERIOD_SECS=1")
    for extra in sorted(request.extras):
        lines.append(f"{EXTRAS[extra]}=true")
    return "\n".join(lines)


def written(file: Path, pid: int) -> Path:
    """Return the file that a process writes if it is told `file`: /tmp/a_7.json for
    /tmp/a.json and the PID 7. The PID is the one that the process sees itself."""
    return file.with_name(f"{file.stem}_{pid}{file.suffix}")


CREDENTIALS = struct.Struct("=iii")  # PID, user, group: filled in by the system
CREDENTIALS_ROOM = (
    socket.CMSG_LEN(CREDENTIALS.size) if hasattr(socket, "CMSG_LEN") else 0
)
"""Bytes that are read beside a datagram: these, and no files, which anybody may send
along."""
ABSTRACT = f"\0{DAEMON}\0"


class CannotListenError(Error):
    """The folder of the socket is not private, too long or missing, or the address is
    taken."""


class ClientMessage(Struct, frozen=True):
    """A message of a process of this user. `pid` is the system's word, not the
    sender's."""

    pid: int
    content: ConfigRequest | Registered
    sender: str | bytes  # the address of its socket


class DaemonSocket:
    """A socket in a private folder, or at the abstract address if `folder` is "".
    `ignored` counts datagrams of wrong sizes or of other users. Raises
    CannotListenError."""

    def __init__(self, folder: str) -> None:
        """Bind the socket in a folder, or at its abstract address if `folder` is "".
        Raises CannotListenError if the folder is not private or another daemon listens
        there."""
        self.folder = folder
        self.ignored = 0
        self._address = f"{folder}/{DAEMON}" if folder else ABSTRACT
        if folder:
            check_folder(folder)
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_UNIX, kind)
        try:
            self._bind()
        except CannotListenError:
            self._socket.close()
            raise
        except OSError as error:
            self._socket.close()
            if error.errno == errno.EADDRINUSE:
                raise CannotListenError(taken(folder)) from None
            where = f"in {folder}" if folder else "at its abstract address"
            raise CannotListenError(
                f"Cannot create a socket {where}: {error.strerror}."
            ) from None

    def _bind(self) -> None:
        """Bind the socket to its address, and let the system name the sender of each
        message. Raises CannotListenError or OSError."""
        if self.folder:
            self._remove_stale()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(self._address)
        self._own = os.stat(self._address) if self.folder else None

    def fileno(self) -> int:
        """Return the number of the socket, which `select` needs."""
        return self._socket.fileno()

    def messages(self) -> Iterator[ClientMessage]:
        """Yield what processes of this user have sent since the last call.

        At most MAX_MESSAGES are read. Messages of other users, of sockets that are not
        named as those of libkineto, and what is no message are counted in `ignored`.
        """
        for _ in range(MAX_MESSAGES):
            try:
                datagram, extras, flags, sender = self._socket.recvmsg(
                    MAX_DATAGRAM_BYTES, CREDENTIALS_ROOM
                )
            except OSError:
                return
            is_cut = bool(flags & socket.MSG_TRUNC)
            content = None if is_cut else decoded(datagram)
            pid, user = _credentials(extras)
            is_own = user == os.geteuid() and _is_client(sender)
            if content is None or not is_own:
                self.ignored += 1
                continue
            yield ClientMessage(pid=pid, content=content, sender=sender)

    def answer(self, to: ClientMessage, text: str = "") -> bool:
        """Answer a message, once.

        A process reads one answer for each message. What it did not ask for would be
        taken for the answer to its next message.

        Args:
            to: The message.
            text: The configuration, to a ConfigRequest; "" for none.

        Returns:
            Whether the system took the answer.
        """
        if isinstance(to.content, ConfigRequest):
            datagram = answer("req", text.encode())
        else:
            datagram = answer("ctxt", bytes(4))
        try:
            sent_bytes = self._socket.sendto(datagram, to.sender)
        except OSError:
            return False
        return sent_bytes == len(datagram)

    def close(self) -> None:
        """Close the socket and remove its file, unless another socket has taken its
        place."""
        if self._own is not None:
            with suppress(OSError):
                present_file = os.lstat(self._address)
                # Another daemon may have bound its own socket there meanwhile.
                if os.path.samestat(present_file, self._own):
                    os.unlink(self._address)
        self._socket.close()

    def _remove_stale(self) -> None:
        """Remove the socket that a daemon left which was killed.

        Nobody listens there: connecting to it is refused. Raises CannotListenError if
        somebody does, or if the file is no socket.
        """
        with suppress(FileNotFoundError):
            mode = os.lstat(self._address).st_mode
            if not stat.S_ISSOCK(mode):
                raise CannotListenError(
                    f"{self._address} is not a socket: move or remove it."
                )
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
                try:
                    trial.connect(self._address)
                except ConnectionRefusedError:
                    os.unlink(self._address)
                else:
                    raise CannotListenError(taken(self.folder))


def _is_client(sender: str | bytes | None) -> bool:
    """Return whether the address of a socket is named like those of libkineto, which
    sends requests."""
    address = os.fsdecode(sender or "")
    path = Path(address.strip("\0"))  # abstract addresses have zeros around them
    return path.name.startswith(CLIENT)


def _credentials(extras: Sequence[tuple[int, int, bytes]]) -> tuple[int, int]:
    """Return the PID and the user id of a sender, as the system says.

    Args:
        extras: The ancillary data of a datagram: level, type and content of each.

    Returns:
        Both numbers; (0, -1) if the system does not say them.
    """
    for level, kind, data in extras:
        if level != socket.SOL_SOCKET or kind != socket.SCM_CREDENTIALS:
            continue
        if len(data) == CREDENTIALS.size:
            pid, user, _group = CREDENTIALS.unpack(data)
            return pid, user
    return 0, -1


def check_folder(folder: str) -> None:
    """Raise CannotListenError unless a folder may hold sockets.

    Only its owner, who must be this user, may enter it: whoever can write to the socket
    of a process can end the process. The path is absolute, and short enough for
    libkineto.
    """
    is_too_long = len(os.fsencode(folder)) > MAX_FOLDER_BYTES
    if not os.path.isabs(folder) or is_too_long:
        raise CannotListenError(
            f"{folder} cannot contain sockets: use an absolute path of at most "
            f"{MAX_FOLDER_BYTES} bytes"
        )
    try:
        status = os.lstat(folder)
    except OSError as error:
        raise CannotListenError(
            f"{folder} cannot contain sockets: {error.strerror}."
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise CannotListenError(
            f"{folder} cannot contain sockets: it belongs to another user."
        )
    rights_of_others = stat.S_IMODE(status.st_mode) & 0o077
    if rights_of_others:
        raise CannotListenError(f"{folder} is open to other users: chmod 700 {folder}")


def taken(folder: str) -> str:
    """Return two sentences that say that another daemon listens, and how to ask dynolog
    itself. `folder` is "" for the abstract address."""
    where = f"in {folder}" if folder else "at the abstract address"
    return (
        f"Another daemon listens {where}: dynolog, or another fusetui. With dynolog, "
        "record with dyno gputrace --pids PID --duration-ms 500 --log-file "
        "/tmp/trace.json"
    )
