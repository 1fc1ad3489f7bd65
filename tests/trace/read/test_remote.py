"""Traces behind URLs: streamed into memory, taken up again where a connection broke."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from zipfile import ZipFile

import pytest
from tests.ports import free_port, wait_for_port

from fusetui.analysis.ranks.executors import summarize
from fusetui.analysis.ranks.model import RankSummary
from fusetui.trace import open_trace
from fusetui.trace.model.errors import CannotReadError, NothingReadError
from fusetui.trace.read import remote
from fusetui.trace.read.remote import expand_pattern, state_of_url
from fusetui.trace.read.source import is_remote

fsspec = pytest.importorskip(
    "fsspec", reason="needs fsspec: pip install 'fusetui[remote]'"
)

EVENTS = [
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": f"aten::op{n}",
        "pid": 1,
        "tid": 1,
        "ts": n,
        "dur": 1,
    }
    for n in range(500)
]
PLAIN = json.dumps({"distributedInfo": {"rank": 3}, "traceEvents": EVENTS}).encode()
PACKED = gzip.compress(PLAIN, mtime=0)


class Files(BaseHTTPRequestHandler):
    """Serves PACKED with ranges and an ETag; breaks off the requests with the numbers
    `breaks`."""

    breaks: Sequence[int] = ()
    given: int | None = None  # bytes of the file, after which every connection breaks
    ranges = True
    tag = '"one"'
    asked: list[str] = []  # noqa: RUF012
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        if not self.path.endswith("rank3.json.gz"):
            self.send_error(404)
        else:
            self.answer(b"", len(PACKED))

    def do_GET(self) -> None:
        if not self.path.endswith("rank3.json.gz"):
            self.send_error(404)
            return
        wanted = self.headers.get("Range", "") if Files.ranges else ""
        Files.asked.append(wanted)
        begin, _, end = wanted.removeprefix("bytes=").partition("-")
        body = PACKED[int(begin or 0) : int(end or len(PACKED)) + 1]
        if Files.given is not None and int(begin or 0) + len(body) > Files.given:
            self.answer(body[: max(Files.given - int(begin or 0), 0)], len(body), begin)
            self.close_connection = True
            return
        if len(Files.asked) in Files.breaks:
            self.answer(body[: len(body) // 2], len(body), begin)
            self.close_connection = True
        else:
            self.answer(body, len(body), begin)

    def answer(self, body: bytes, length: int, begin: str = "") -> None:
        self.send_response(206 if begin else 200)
        if begin:
            at = int(begin)
            self.send_header(
                "Content-Range", f"bytes {at}-{at + length - 1}/{len(PACKED)}"
            )
        if Files.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", Files.tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    pytest.importorskip(
        "aiohttp", reason="needs aiohttp, the driver of fsspec for http://"
    )
    Files.breaks, Files.given, Files.tag, Files.asked = (), None, '"one"', []
    fsspec.config.conf["http"] = {"skip_instance_cache": True}
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture
def in_memory() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    system.pipe("/job/rank3.json.gz", PACKED)
    system.pipe("/job/notes.txt", b"not a trace")
    yield "memory://job"
    system.rm("/job", recursive=True)


def test_text_with_a_scheme_is_a_url() -> None:
    assert [
        is_remote(one) for one in ("s3://a/b", "HTTPS://a/b", "a/b", "-", "sample:mlp")
    ] == [
        *(True, True, False, False, False),
    ]


def test_a_trace_behind_a_url_is_the_same(in_memory: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(PLAIN)
    here, there = (
        open_trace(str(tmp_path / "trace.json")),
        open_trace(f"{in_memory}/rank3.json.gz"),
    )
    assert here.start.tolist() == there.start.tolist()
    assert here.names == there.names
    assert there.report.path == "memory://job/rank3.json.gz"
    assert there.elements.element(7)["name"] == "aten::op7"  # args stay within reach


def test_patterns_and_folders_behind_urls_list_their_traces(in_memory: str) -> None:
    wanted = "memory:///job/rank3.json.gz"
    assert expand_pattern(f"{in_memory}/*.gz") == [wanted]
    assert wanted in expand_pattern(in_memory)


@pytest.mark.skipif(
    "not hasattr(os, 'memfd_create')", reason="there are no files in memory here"
)
def test_remote_trace_is_not_written_to_disk(
    in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local file of that size would be unpacked to disk."""
    monkeypatch.setattr("fusetui.trace.read.source.memory_left", lambda: 4096)
    # it is not called
    monkeypatch.setattr("fusetui.trace.read.source.file_on_disk", None)
    assert len(open_trace(f"{in_memory}/rank3.json.gz")) == len(EVENTS)


def test_more_than_fits_into_memory(
    in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.trace.read.remote.memory_left", lambda: 0)
    with pytest.raises(CannotReadError, match="needs more memory than is available"):
        open_trace(f"{in_memory}/rank3.json.gz")


def test_trace_over_http_is_read_whole(server: str) -> None:
    assert len(open_trace(f"{server}/rank3.json.gz")) == len(EVENTS)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_while_it_arrives(
    in_memory: str, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """Each piece is looked at before more is fetched: once reading stops, so does
    fetching."""
    monkeypatch.setattr(remote, "PIECE_BYTES", 1 << 14)
    noise = random.Random(1)
    events = [
        {**event, "args": {"noise": noise.randbytes(800).hex()}} for event in EVENTS
    ]
    content = json.dumps(events).encode()
    content = gzip.compress(content) if packed else content
    fsspec.filesystem("memory").pipe("/job/noise", content)
    fetched: list[int] = []
    pieces = remote._pieces

    def counted(url: str) -> Iterator[bytes]:
        for piece in pieces(url):
            fetched.append(len(piece))
            yield piece

    monkeypatch.setattr(remote, "_pieces", counted)
    assert len(open_trace(f"{in_memory}/noise")) == len(EVENTS)
    assert sum(fetched) == len(content)
    fetched.clear()
    with suppress(NothingReadError):
        open_trace(f"{in_memory}/noise", stop=lambda: len(fetched) > 1)
    assert sum(fetched) < len(content)


def test_a_file_that_is_not_as_long_as_its_server_says(
    in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (len(PACKED) - 100, len(PACKED) + 100):
        monkeypatch.setattr(
            "fusetui.trace.read.remote.size_of_url", lambda _, size=size: size
        )
        with pytest.raises(
            CannotReadError, match=("does not have the length that its server reports")
        ):
            open_trace(f"{in_memory}/rank3.json.gz")


def test_zip_behind_a_url_is_read(in_memory: str) -> None:
    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        archive.writestr("trace.json", PLAIN)
    fsspec.filesystem("memory").pipe("/job/rank3.zip", packed.getvalue())
    assert len(open_trace(f"{in_memory}/rank3.zip")) == len(EVENTS)


def test_a_broken_connection_is_taken_up_where_it_broke(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PIECE_BYTES", 512)
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    Files.breaks = (2, 4)
    assert len(open_trace(f"{server}/rank3.json.gz")) == len(EVENTS)
    begins = [int(one.removeprefix("bytes=").partition("-")[0]) for one in Files.asked]
    # what broke is asked for again, and nothing before it
    assert begins[1] == begins[2] > 0
    assert begins == sorted(begins)


def test_a_server_that_cannot_begin_in_the_middle_sends_all_at_once(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of `python -m http.server`, which says nothing of ranges."""
    monkeypatch.setattr(remote, "PIECE_BYTES", 512)
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    monkeypatch.setattr(Files, "ranges", False)
    trace = open_trace(f"{server}/rank3.json.gz")
    assert (len(trace), trace.report.cut) == (len(EVENTS), None)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("given", [700, 1000, len(PACKED) - 1])
def test_a_file_that_always_breaks_at_a_byte_gives_all_before_it(
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: int,
    ranges: bool,
) -> None:
    """As much as a file on disk that was cut there."""
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    monkeypatch.setattr(Files, "ranges", ranges)
    Files.given = given
    (tmp_path / "cut.json.gz").write_bytes(PACKED[:given])
    local = open_trace(str(tmp_path / "cut.json.gz"), cached=False)
    behind_url = open_trace(f"{server}/rank3.json.gz")
    assert behind_url.report.events == local.report.events
    assert (
        behind_url.report.cut
        == f"the connection broke after {given} of {len(PACKED)} bytes"
    )


def test_a_connection_that_always_breaks_ends_with_a_sentence(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    Files.breaks = range(1000)
    with pytest.raises(CannotReadError, match=r"rank3\.json\.gz cannot be read"):
        open_trace(f"{server}/rank3.json.gz")


def test_a_file_that_is_not_there(server: str) -> None:
    with pytest.raises(CannotReadError, match="no such file"):
        open_trace(f"{server}/other.json")


def test_a_server_that_is_not_there_is_not_a_missing_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    with pytest.raises(
        CannotReadError, match=r"cannot be read: Cannot connect to host 127\.0\.0\.1"
    ):
        open_trace(f"http://127.0.0.1:{free_port()}/rank3.json.gz")


def test_a_driver_that_is_missing_is_named() -> None:
    with pytest.raises(CannotReadError, match="fsspec has no driver for nowhere://"):
        open_trace("nowhere://a/b.json")


def test_a_driver_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(
        CannotReadError, match=r"needs the fsspec driver for gs://.*gcsfs"
    ):
        open_trace("gs://a/b.json")


def test_without_fsspec_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(CannotReadError, match=r"pip install 'fusetui\[remote\]'"):
        open_trace("s3://a/b.json")


def test_a_state_of_a_file_is_known_by_its_tag(server: str) -> None:
    first = state_of_url(f"{server}/rank3.json.gz")
    Files.tag = '"two"'
    assert first[0] == len(PACKED)
    assert state_of_url(f"{server}/rank3.json.gz") != first


def test_a_summary_is_kept_by_url_and_tag(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{server}/rank3.json.gz"
    (first,) = summarize([url])
    asked = len(Files.asked)
    assert isinstance(first, RankSummary)
    (second,) = summarize([url])
    assert isinstance(second, RankSummary)
    assert len(Files.asked) == asked  # nothing was read again
    Files.tag = '"two"'
    summarize([url])
    assert len(Files.asked) > asked


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of an S3 server on this machine."""
    for needed in ("moto", "s3fs", "flask"):
        pytest.importorskip(needed, reason="needs moto[server] and s3fs")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    keys = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_ENDPOINT_URL": endpoint,
    }
    command = [
        sys.executable,
        "-P",
        "-m",
        "moto.server",
        "-H",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    with (
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen(
            command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as server,
    ):
        for key, value in {**keys, "AWS_DEFAULT_REGION": "us-east-1"}.items():
            patch.setenv(key, value)
        try:
            wait_for_port(port)
            system = fsspec.filesystem("s3", skip_instance_cache=True)
            system.mkdir("job")
            for rank in range(2):
                text = PLAIN.replace(b'"rank": 3', b'"rank": %d' % rank)
                system.pipe(f"job/rank{rank}.json.gz", gzip.compress(text))
            yield "s3://job"
        finally:
            server.kill()


def test_ranks_of_an_s3_bucket_are_summarized(bucket: str) -> None:
    found = summarize(expand_pattern(f"{bucket}/*.json.gz"))
    assert [(one.path, one.rank) for one in found if isinstance(one, RankSummary)] == [
        ("s3://job/rank0.json.gz", 0),
        ("s3://job/rank1.json.gz", 1),
    ]


def test_a_command_takes_urls(bucket: str) -> None:
    """In a process of its own, as users run it."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "fusetui",
        "summary",
        f"{bucket}/rank0.json.gz",
        "--json",
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, env=dict(os.environ), timeout=60
    )
    assert json.loads(run.stdout)["file"] == "s3://job/rank0.json.gz", run.stderr
