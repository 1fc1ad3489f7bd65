"""A server that answers as the debug server of torch does
(torch/distributed/debug/_frontend.py): each page shows the answers of all ranks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.flight_dumps import Job
from tests.ports import LOCAL


class RankAnswer:
    """What one rank answers to the debug server."""

    def __init__(self, text: str, status: int = 200) -> None:
        self.text = text
        self.status = status

    def html(self, rank: int) -> str:
        """This answer as a part of a page."""
        failed = ""
        if self.status != 200:
            failed = f"<p>Failed to fetch: status={self.status}</p>"
        return f"<h2>Rank {rank}: http://host:1/</h2>{failed}<pre>{self.text}</pre>"


def page(answers: Mapping[int, RankAnswer]) -> bytes:
    """A page with the answers of some ranks."""
    parts = [answer.html(rank) for rank, answer in answers.items()]
    return ("<!doctype html><pre>head</pre>" + "\n".join(parts)).encode()


def dumps_of(job: Job) -> dict[int, RankAnswer]:
    """The dumps of all ranks as JSON."""
    return {
        rank: RankAnswer(json.dumps(job.dump(rank), indent=2)) for rank in job.entries
    }


def stacks(*lines: tuple[str, int, str]) -> RankAnswer:
    """The stack of a main thread, innermost line first, below that of the server."""
    frames = [
        f'  File "{file}", line {line} in {function}' for file, line, function in lines
    ]
    text = [
        "Current thread 0x1 (most recent call first):",
        "  <no Python frame>",
        "",
        "Thread 0x2 (most recent call first):",
        *frames,
    ]
    return RankAnswer("\n".join(text) + "\n")


@contextmanager
def debug_server(pages: Mapping[str, bytes]) -> Iterator[str]:
    """The address of a server that has these pages, and no others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = pages.get(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer((LOCAL, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://{LOCAL}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
