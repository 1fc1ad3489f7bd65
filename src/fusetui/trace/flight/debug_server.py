"""Takes dumps of torch's flight recorder from the debug server of a running job
(`torch.distributed.debug`).

Format of what it shows: `torch/distributed/debug/_frontend.py` of torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from html import unescape
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec
import orjson

from fusetui.trace.flight.python_stacks import STACKS_KEY
from fusetui.trace.model.errors import TraceError

DEFAULT_SERVER = "http://localhost:25999"
"""Where `start_debug_server` of torch listens on the host of rank 0."""

DEFAULT_PORT = urlsplit(DEFAULT_SERVER).port
NO_STACKS: Mapping[int, str] = MappingProxyType({})
SERVER_SECONDS = 90.0
"""Without a byte of the server. It waits 60 s for a rank that does not answer."""

MAX_ANSWER_BYTES = 2 << 30
PIECE_BYTES = 1 << 20
MAX_RANK_DIGITS = 7

_HEADING = re.compile(rb"<h2>Rank ([0-9]{1,%d}): " % MAX_RANK_DIGITS)
_TEXT_BEGINS, _TEXT_ENDS = b"<pre>", b"</pre>"
_FAILED = re.compile(rb"Failed to fetch: status=([0-9]{1,3})")


class NoDebugServerError(TraceError):
    """Nobody answers there, or not as the debug server of torch does."""


class Recorder(NamedTuple):
    """One of the two recorders that a rank has."""

    name: str
    path: str
    """Where the debug server shows the dumps of all ranks."""


RECORDERS = (
    Recorder(name="nccl", path="/fr_trace_nccl_json"),
    Recorder(name="cpu", path="/fr_trace_json"),
)


STACKS_PATH = "/stacks"
"""Where the debug server shows the stacks of Python of all ranks."""


class TakenDump(msgspec.Struct, frozen=True):
    """What one recorder of a rank answered."""

    rank: int
    text: bytes
    """JSON; b"" if the rank gave none."""
    entries: int
    """Collectives in it."""
    why_missing: str = ""


def dumps_of_server(address: str) -> dict[str, list[TakenDump]]:
    """What the ranks of a job answer to its debug server, by the name of the recorder,
    with their stacks of Python. Only recorders that have entries are in it, or if none
    has any, the last one.

    Raises NoDebugServerError.
    """
    server = _server(address)
    stacks = _stacks(server)
    answers: dict[str, list[TakenDump]] = {}
    for recorder in RECORDERS:
        html = _answer(server, recorder.path)
        answers[recorder.name] = dumps_in(html, stacks)
    with_entries = {
        name: ranks
        for name, ranks in answers.items()
        if any(dump.entries for dump in ranks)
    }
    if with_entries:
        return with_entries
    last = RECORDERS[-1].name
    if not answers[last]:
        raise NoDebugServerError(
            f"{address} is not a torch debug server: its page {RECORDERS[-1].path} "
            "lists no rank."
        )
    return {last: answers[last]}


def dumps_in(html: bytes, stacks: Mapping[int, str] = NO_STACKS) -> list[TakenDump]:
    """The dumps on a page of the debug server, by rank; those of ranks that have
    `stacks` hold them under a key of their own."""
    return [
        _dump_of(rank, part, stacks.get(rank))
        for rank, part in _parts_of_ranks(html).items()
    ]


def _parts_of_ranks(html: bytes) -> dict[int, bytes]:
    """What follows the heading of each rank on a page, in ascending order of the ranks;
    of two headings of one rank, the first counts."""
    parts: dict[int, bytes] = {}
    end = len(html)
    for heading in reversed(list(_HEADING.finditer(html))):
        parts[int(heading[1])] = html[heading.end() : end]
        end = heading.start()
    return dict(sorted(parts.items()))


def _text_in(part: bytes) -> bytes | None:
    """The text that a part of a page shows; None if it shows none."""
    begin = part.find(_TEXT_BEGINS)
    end = part.rfind(_TEXT_ENDS)
    if begin < 0 or end < begin:
        return None
    return part[begin + len(_TEXT_BEGINS) : end]


def _stacks(server: SplitResult) -> dict[int, str]:
    """The stacks of Python by rank; those of ranks that do not answer are left out, and
    all of them if the server has no such page."""
    try:
        html = _answer(server, STACKS_PATH)
    except NoDebugServerError:
        return {}
    stacks = {}
    for rank, part in _parts_of_ranks(html).items():
        text = None if _has_failed(part) else _text_in(part)
        if text is not None:
            stacks[rank] = text.decode("utf-8", "replace")
    return stacks


def _has_failed(part: bytes) -> re.Match[bytes] | None:
    """The status with which a rank answered, unless that was 200."""
    return _FAILED.search(part.partition(_TEXT_BEGINS)[0])


def _dump_of(rank: int, part: bytes, stacks: str | None) -> TakenDump:
    """The dump in the part of a page that follows the heading of a rank, with its stacks
    if they are known."""
    failed = _has_failed(part)
    if failed:
        status = failed[1].decode()
        return _no_dump(rank, f"it did not answer the debug server (status {status})")
    text = _text_in(part)
    if text is None:
        return _no_dump(rank, "the debug server shows no text for it")
    document = _document(text)
    if document is None:  # a server that escapes what it shows
        text = unescape(text.decode("utf-8", "replace")).encode()
        document = _document(text)
    if document is None:
        return _no_dump(rank, "the debug server shows no dump for it")
    entries = document.get("entries")
    count = len(entries) if isinstance(entries, list) else 0
    if stacks is not None:
        text = orjson.dumps({**document, STACKS_KEY: stacks})
    return TakenDump(rank=rank, text=text, entries=count)


def _no_dump(rank: int, why: str) -> TakenDump:
    return TakenDump(rank=rank, text=b"", entries=0, why_missing=why)


def _document(text: bytes) -> dict[str, Any] | None:
    """The JSON object in a text; None if it is none."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _server(address: str) -> SplitResult:
    """The parts of an address. Raises NoDebugServerError for what is none."""
    whole = address if "://" in address else f"http://{address}"
    try:
        server = urlsplit(whole)
        is_address = server.scheme == "http" and bool(server.hostname)
        _ = server.port  # raises ValueError beyond 65535
    except ValueError:
        is_address = False
    if not is_address:
        raise NoDebugServerError(
            f"{address} is not a debug server address, such as {DEFAULT_SERVER}."
        )
    return server


def _answer(server: SplitResult, path: str) -> bytes:
    """What a server answers, which may send the caller nowhere else. Raises
    NoDebugServerError."""
    from http.client import HTTPConnection, HTTPException

    port = server.port or DEFAULT_PORT
    place = f"{server.hostname}:{port}"
    connection = HTTPConnection(server.hostname or "", port, timeout=SERVER_SECONDS)
    try:
        with closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status != 200:
                raise NoDebugServerError(
                    f"{place} is not a torch debug server: it answers {path} with "
                    f"status {answer.status}."
                )
            content = bytearray()
            while piece := answer.read(PIECE_BYTES):
                content += piece
                if len(content) > MAX_ANSWER_BYTES:
                    raise NoDebugServerError(
                        f"{place} sends more than {MAX_ANSWER_BYTES >> 30} GiB, so "
                        "the download was stopped."
                    )
            return bytes(content)
    except TimeoutError:
        raise NoDebugServerError(
            f"{place} sent nothing for {SERVER_SECONDS:.0f} s."
        ) from None
    except (OSError, HTTPException, UnicodeError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise NoDebugServerError(
            f"No torch debug server answers at {place}: {why}. Start one in the "
            "program with torch.distributed.debug.start_debug_server()."
        ) from None
