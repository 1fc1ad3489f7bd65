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
    """Ask the debug server of a job for the flight recorder dumps of all ranks, with
    their Python stacks.

    The result is by the name of the recorder, and has only recorders with entries. If
    none has any, it has the last recorder. Raises NoDebugServerError.
    """
    server = _parse_address(address)
    stacks = _fetch_stacks(server)
    answers: dict[str, list[TakenDump]] = {}
    for recorder in RECORDERS:
        html = _fetch_text(server, recorder.path)
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
    """The dumps on a page of the debug server, by rank. `stacks` has the Python stacks
    of some ranks, which are put into their dumps."""
    return [
        _read_dump(rank, part, stacks.get(rank))
        for rank, part in _split_by_rank(html).items()
    ]


def _split_by_rank(html: bytes) -> dict[int, bytes]:
    """Divide a page into the parts of the ranks, in ascending order of the ranks.

    The part of a rank is what follows its heading, up to the next heading. If a rank
    has two headings, the first counts.
    """
    parts: dict[int, bytes] = {}
    end = len(html)
    for heading in reversed(list(_HEADING.finditer(html))):
        parts[int(heading[1])] = html[heading.end() : end]
        end = heading.start()
    return dict(sorted(parts.items()))


def _preformatted_text(part: bytes) -> bytes | None:
    """The preformatted text in a part of an HTML page; None if there is none."""
    begin = part.find(_TEXT_BEGINS)
    end = part.rfind(_TEXT_ENDS)
    if begin < 0 or end < begin:
        return None
    return part[begin + len(_TEXT_BEGINS) : end]


def _fetch_stacks(server: SplitResult) -> dict[int, str]:
    """The Python stacks of each rank, as text. Ranks that do not answer are left out;
    {} if the server has no such page."""
    try:
        html = _fetch_text(server, STACKS_PATH)
    except NoDebugServerError:
        return {}
    stacks = {}
    for rank, part in _split_by_rank(html).items():
        text = None if _find_failure(part) else _preformatted_text(part)
        if text is not None:
            stacks[rank] = text.decode("utf-8", "replace")
    return stacks


def _find_failure(part: bytes) -> re.Match[bytes] | None:
    """A match with the status with which a rank failed to answer; None if it answered."""
    return _FAILED.search(part.partition(_TEXT_BEGINS)[0])


def _read_dump(rank: int, part: bytes, stacks: str | None) -> TakenDump:
    """The dump in the part of a page that belongs to a rank. `stacks` is the text of
    its Python stacks, or None. Without a dump, the result says why."""
    failed = _find_failure(part)
    if failed:
        status = failed[1].decode()
        return _no_dump(rank, f"it did not answer the debug server (status {status})")
    text = _preformatted_text(part)
    if text is None:
        return _no_dump(rank, "the debug server shows no text for it")
    document = _decode_object(text)
    if document is None:  # a server that escapes what it shows
        text = unescape(text.decode("utf-8", "replace")).encode()
        document = _decode_object(text)
    if document is None:
        return _no_dump(rank, "the debug server shows no dump for it")
    entries = document.get("entries")
    count = len(entries) if isinstance(entries, list) else 0
    if stacks is not None:
        text = orjson.dumps({**document, STACKS_KEY: stacks})
    return TakenDump(rank=rank, text=text, entries=count)


def _no_dump(rank: int, why: str) -> TakenDump:
    """The answer of a rank without a dump, for the reason `why`."""
    return TakenDump(rank=rank, text=b"", entries=0, why_missing=why)


def _decode_object(text: bytes) -> dict[str, Any] | None:
    """The JSON object in a text; None if it is none."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _parse_address(address: str) -> SplitResult:
    """The parts of the address of a debug server, with http:// added if it is missing.
    Raises NoDebugServerError if it is no address."""
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


def _fetch_text(server: SplitResult, path: str) -> bytes:
    """The content of a page of a server; redirects are not followed. Raises
    NoDebugServerError if the server does not answer, or sends too much."""
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
