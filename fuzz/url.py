"""The kind of inputs that stand behind URLs of a server that misbehaves."""

from __future__ import annotations

import gzip
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import NamedTuple

import fsspec
import pytest
from fuzz.campaign import Kind
from fuzz.checks import check, check_trace
from fuzz.commands import answer
from fuzz.document import document
from fuzz.examine import Limited
from fuzz.limits import check_memory, limited
from fuzz.zip import archive, opened

from fusetui.trace import Trace
from fusetui.trace.read import remote

BOUNDS = {
    "STALL_S": 0.3,
    "PATIENCE_S": 1.0,
    "PAUSE_S": 0.01,
    "MAX_UNKNOWN_BYTES": 1 << 18,
    "PIECE_BYTES": 1 << 12,
}
"""Those of `remote`, smaller."""
DRIP, PAUSE = 500, 0.03  # bytes at once, and seconds until the next
SECONDS = 20.0  # after which a question hangs: each try has the bounds above
SECRETS = ("hunter2", "s1gnature")
COMMANDS = ("summary", "why", "kernels", "ops", "ranks")

GOOD = ("ranges", "whole", "unknown length", "drip", "redirect")
"""Servers whose file arrives as it is."""
BAD = (
    *("endless", "silent", "half", "half of ranges", "too long", "too short", "reset"),
    *(
        "circle",
        "gzip",
        "no ranges after all",
        "416",
        "404",
        "403",
        "500",
        "no HTTP",
        "changing",
    ),
    *("other range", "negative length", "silent later"),
)


class Site(NamedTuple):
    body: bytes
    way: str
    url: str  # with {host}


def site(seed: int, number: int) -> Site:
    """Always the same for the same numbers."""
    rnd = Random(f"url {seed}/{number}")
    body = document(rnd).text().encode("utf-8", "surrogatepass")
    body += b" " * rnd.choice((0, 0, 0, 9_000))  # several pieces
    share = rnd.random()
    name = "trace.json"
    if share < 0.3:
        body, name = gzip.compress(body, mtime=0), "trace.json.gz"
    elif share < 0.4:
        body, name = archive(seed, number), "trace.zip"
    user = rnd.choice(
        ("", "", f"me:{SECRETS[0]}@", f"{SECRETS[0]}@", f"a:b@c:{SECRETS[0]}@")
    )
    query = rnd.choice(
        ("", "", f"?X-Amz-Signature={SECRETS[1]}", f"?a=b&sig={SECRETS[1]}#x")
    )
    way = rnd.choice(GOOD if rnd.random() < 0.3 else BAD)
    return Site(body, way, f"http://{user}{{host}}/{name}{query}")


class Handler(BaseHTTPRequestHandler):
    """`site` says what it serves, and how."""

    protocol_version = "HTTP/1.1"
    site = Site(b"", "", "")
    over = Event()
    asked = 0

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        Handler.asked += 1
        with suppress(OSError):
            self._answer(Handler.site.way)

    def _answer(self, way: str) -> None:
        body = Handler.site.body
        codes = {"404": 404, "403": 403, "500": 500, "416": 416}
        if way == "silent" or (way == "silent later" and Handler.asked > 2):
            Handler.over.wait()
        elif way in codes:
            if way != "416" or self.headers.get("Range"):
                self.send_error(codes[way])
            else:
                self._send(200, body, len(body))
        elif way in ("circle", "redirect"):
            self._redirect(way)
        elif way == "endless":
            self._endless()
        elif way == "unknown length":
            self._send(200, body, None)
        elif way == "no HTTP":
            self.wfile.write(b"\x1b]0;PWN\x07\r\n\r\n" + body)
        elif way == "reset":
            self.close_connection = True
        else:
            self._part(way, body)
        self.close_connection |= way in ("silent", "silent later", "no HTTP")

    def _part(self, way: str, body: bytes) -> None:
        """As much of it as was asked for, or as this server thinks."""
        if way == "changing":
            body = body[: -Handler.asked] if len(body) > 99 else body
        begin, _, end = (
            self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        )
        later = way == "no ranges after all" and Handler.asked > 2
        ranged = bool(begin) and way not in ("whole", "half", "gzip") and not later
        first, last = (
            (int(begin), int(end or len(body)) + 1) if ranged else (0, len(body))
        )
        first += 7 if way == "other range" and first else 0
        part = body[first:last]
        length = len(part) + {"too long": 99, "too short": -9}.get(way, 0)
        if way == "negative length":
            length = -1
        there = max(len(body) // 2 - first, 0) if way.startswith("half") else len(part)
        self._send(206 if ranged else 200, part[:there], length, first, len(body))

    def _send(
        self, code: int, part: bytes, length: int | None, first: int = 0, whole: int = 0
    ) -> None:
        way = Handler.site.way
        self.send_response(code)
        if code == 206:
            last = first + len(part) - 1
            self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
        if way not in ("half", "whole", "unknown length"):
            self.send_header("Accept-Ranges", "bytes")
        if way == "gzip":  # which it is not
            self.send_header("Content-Encoding", "gzip")
        if way == "changing":
            self.send_header("ETag", f'"{Handler.asked}"')
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "GET":
            self._write(part)
        self.close_connection = length != len(part)

    def _write(self, part: bytes) -> None:
        size = DRIP if Handler.site.way == "drip" else len(part) or 1
        for at in range(0, len(part), size):
            self.wfile.write(part[at : at + size])
            if size < len(part) and Handler.over.wait(PAUSE):
                return

    def _redirect(self, way: str) -> None:
        there = way == "redirect" and "again" in self.path
        if there:
            self._send(200, Handler.site.body, len(Handler.site.body))
            return
        self.send_response(302)
        self.send_header(
            "Location", f"{self.path.partition('?')[0]}?again={Handler.asked}"
        )
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while self.command == "GET" and not Handler.over.is_set():
            self.wfile.write(b"10000\r\n" + b" " * (1 << 16) + b"\r\n")

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def handle_error(self, *_: object) -> None:
        """Who asks may leave at any time."""


@contextmanager
def serving(site: Site) -> Iterator[str]:
    """The URL while it is served."""
    Handler.site, Handler.asked = site, 0
    Handler.over.clear()
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = Thread(target=partial(running.serve_forever, 0.01), daemon=True)
        thread.start()
        try:
            yield site.url.format(host=f"127.0.0.1:{running.server_port}")
        finally:
            Handler.over.set()
            running.shutdown()
            thread.join()


def examine_site(site: Site, number: int, limited: Limited) -> str:
    """What became of it: `refused`, `cut`, or `whole`."""
    rnd = Random(number)
    with (
        warnings.catch_warnings(action="ignore"),
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        serving(site) as url,
    ):
        patch.setenv("FUSETUI_CACHE", "off")
        patch.setitem(fsspec.config.conf, "http", {"skip_instance_cache": True})
        for name, bound in BOUNDS.items():
            patch.setattr(remote, name, bound)
        path = Path(folder) / "trace.json"
        path.write_bytes(site.body)
        with limited(f"open ({site.way})"), _soon(site.way):
            found = opened(url)
        Handler.asked = 0
        with limited(f"a command ({site.way})"), _soon(site.way):
            said = answer([rnd.choice(COMMANDS), url, *rnd.choice(([], ["--json"]))])
        for secret in SECRETS:
            check(secret not in said.out + said.err, "a secret of a URL", said)
        check_memory()
        return _judged(site, found, opened(path))


@contextmanager
def _soon(what: str) -> Iterator[None]:
    begin = time.monotonic()
    yield
    check(time.monotonic() - begin < SECONDS, f"hangs: {what}")


def _judged(site: Site, found: Trace | str, here: Trace | str) -> str:
    """Beside the same file on disk: nothing is missing that was not told of."""
    if isinstance(found, str):
        check(isinstance(here, str) or site.way in BAD, f"refused ({site.way})", found)
        return "refused"
    check_trace(found)
    if isinstance(here, str):
        check(site.way in BAD, "read what is refused on disk", here)
        return "whole"
    events = found.report.events, here.report.events
    check(events[0] <= events[1], f"more than there is ({site.way})", events)
    if found.report.cut == here.report.cut:
        check(events[0] == events[1], f"lost without a word ({site.way})", events)
        return "whole"
    check(site.way in BAD, f"cut ({site.way})", found.report.cut)
    return "cut"


def attempt(seed: int, number: int) -> str:
    return examine_site(site(seed, number), number, limited)


def save(seed: int, number: int, _what: str, place: Path) -> Path:
    """What it serves; the end of the name says how."""
    found = site(seed, number)
    path = place.with_name(f"{place.name}-{found.way.replace(' ', '-')}")
    path.write_bytes(found.body)
    return path


KIND = Kind("url", attempt, save)
