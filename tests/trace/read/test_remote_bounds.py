"""Servers that misbehave: endless, silent or broken bodies, and the passwords of
URLs."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from fusetui.cli import run
from fusetui.commands.errors import run_guarded
from fusetui.text.printable import without_credentials
from fusetui.trace import open_trace
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.read import remote

fsspec = pytest.importorskip(
    "fsspec", reason="needs fsspec: pip install 'fusetui[remote]'"
)
pytest.importorskip("aiohttp", reason="needs aiohttp, the driver of fsspec for http://")

NOISE = random.Random(1)
EVENTS = [
    {
        "ph": "X",
        "name": NOISE.randbytes(40).hex(),
        "pid": 1,
        "tid": 1,
        "ts": n,
        "dur": 1,
    }
    for n in range(20_000)
]
PLAIN = json.dumps({"traceEvents": EVENTS}).encode()
BODIES = {"/trace.json": PLAIN, "/trace.json.gz": gzip.compress(PLAIN, mtime=0)}


class Bad(BaseHTTPRequestHandler):
    """`way` says how it misbehaves; without one it does not."""

    way = ""
    over = Event()
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if Bad.way == "silent":
            Bad.over.wait()
            self.close_connection = True
            return
        body = BODIES[self.path.partition("?")[0]]
        if Bad.way == "endless":
            self._endless()
            return
        begin, _, end = (
            self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        )
        ranged = bool(begin) and Bad.way != "half"
        first, last = (
            (int(begin), int(end or len(body)) + 1) if ranged else (0, len(body))
        )
        part = body[first:last]
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header(
                "Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(body)}"
            )
        if Bad.way != "half":
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "GET":
            there = len(body) // 2 - first if Bad.way else len(part)
            self.wfile.write(part[: max(there, 0)])
            self.close_connection = there < len(part)

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(OSError):
            while self.command == "GET" and not Bad.over.is_set():
                self.wfile.write(b"10000\r\n" + b" " * (1 << 16) + b"\r\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Starts to misbehave in this way; returns the host."""
    monkeypatch.setitem(fsspec.config.conf, "http", {"skip_instance_cache": True})
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    Bad.way = ""
    Bad.over.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Bad) as running:
        running.daemon_threads = True
        Thread(target=running.serve_forever, daemon=True).start()

        def misbehave(way: str) -> str:
            Bad.way = way
            return f"127.0.0.1:{running.server_port}"

        yield misbehave
        Bad.over.set()
        running.shutdown()


def test_an_endless_body_has_a_bound(
    server: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MAX_UNKNOWN_BYTES", 1 << 20)
    with pytest.raises(
        CannotReadError,
        match=r"did not end within .* GiB, and its server does not report its size",
    ):
        open_trace(f"http://{server('endless')}/trace.json")


def test_a_server_that_says_nothing_is_given_up(
    server: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "STALL_S", 0.2)
    monkeypatch.setattr(remote, "_pieces", None)  # it is not asked again
    with pytest.raises(
        CannotReadError, match=r"cannot be read: nothing arrived for 0\.2 s\.$"
    ):
        open_trace(f"http://{server('silent')}/trace.json")


@pytest.mark.parametrize(("way", "least"), [("half of ranges", 0.98), ("half", 0.1)])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_half_a_body_is_a_file_that_was_cut_short(
    server: Callable[[str], str], tmp_path: Path, way: str, least: float, name: str
) -> None:
    """Where nothing can be asked for again, the driver keeps back what it had in its
    buffer."""
    size = len(BODIES[f"/{name}"])
    (tmp_path / name).write_bytes(BODIES[f"/{name}"][: size // 2])
    trace, there = (
        open_trace(f"http://{server(way)}/{name}"),
        open_trace(str(tmp_path / name)),
    )
    assert least * len(there) < len(trace) <= len(there)
    assert not trace.report.complete
    assert str(trace.report.cut).startswith("the connection broke after ")
    assert str(trace.report.cut).endswith(f" of {size} bytes")


@pytest.mark.parametrize("command", ["summary", "why", "kernels", "ranks", "diff"])
def test_no_output_repeats_a_password(
    server: Callable[[str], str], capsys: pytest.CaptureFixture[str], command: str
) -> None:
    url = f"http://me:secret@{server('')}/trace.json?signature=hidden"
    for name in ("trace", "none"):
        urls = [url.replace("trace", name)] * (2 if command == "diff" else 1)
        run_guarded(partial(run, [command, *urls, "--json"]))
    shown = "".join(capsys.readouterr())
    assert "127.0.0.1" in shown
    assert not [word for word in ("me:", "secret", "hidden") if word in shown]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/a.json", "s3://bucket/a.json"),
        ("ftp://user:p@ss@host/a.json is", "ftp://host/a.json is"),
        ("https://host/a.json?X-Amz-Signature=1 x", "https://host/a.json?... x"),
        ("s3://bucket/rank?.json", "s3://bucket/rank?.json"),
        ("mail@host", "mail@host"),
    ],
)
def test_url_is_shown_without_password_and_signature(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_a_long_text_takes_no_time() -> None:
    """No pattern goes over it again and again."""
    assert without_credentials("://" * 100_000 + "@") == "://" * 100_000
